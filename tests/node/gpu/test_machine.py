"""From what was read to what may be planned on, and to what is reported."""

from dataclasses import replace

import pytest

from brain_node.contract.catalog import load_catalog
from brain_node.gpu.claims import claims_of
from brain_node.gpu.machine import machine_of
from brain_node.plan.planner import plan
from brain_node.plan.records import PlanRequest
from tests.support.fake_nvml import MIB, card, mig_slice

CATALOG = load_catalog()


@pytest.fixture
def no_limit(tmp_path):
    return tmp_path / "no-cgroup"


@pytest.mark.case("A-08")
class TestUnlikeCards:
    @pytest.fixture
    def two(self, fake):
        fake.cards = [card("Small", 8188), card("Big", 24564)]
        return fake.write()

    def test_a_model_for_the_big_one_gets_it_by_uuid(self, two, reader, no_limit):
        machine = machine_of(reader.read(), no_limit)
        (placed,) = plan(CATALOG, machine, PlanRequest(("qwen/qwen2.5-7b-instruct",))).placements
        assert placed.environment == {"CUDA_VISIBLE_DEVICES": two.uuid(1), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def test_an_operator_who_names_the_small_one_keeps_the_big_one_out_of_everything(self, two, reader, no_limit):
        inventory = replace(reader, environment={"CUDA_VISIBLE_DEVICES": two.uuid(0)}).read()
        machine = machine_of(inventory, no_limit)
        answer = plan(CATALOG, machine, PlanRequest(("qwen/qwen2.5-7b-instruct",)))
        assert answer.placements == ()
        assert "GPU 0 (Small, 8 GB)" in answer.refusals[0].message
        assert [claim.name for claim in claims_of(inventory)] == ["Small"]


@pytest.mark.case("A-05")
def test_a_lost_card_is_reported_and_not_planned_on(fake, reader, no_limit):
    fake.cards = [card(f"Card {index}", 24564) for index in range(4)]
    fake.write()
    reader.read()
    fake.cards[2]["error"] = 15
    fake.write()
    inventory = reader.read()
    assert [claim.state for claim in claims_of(inventory)] == ["ok", "ok", "lost", "ok"]
    assert [each.index for each in machine_of(inventory, no_limit).cards] == [0, 1, 3]
    assert claims_of(inventory)[2].free_bytes is None


@pytest.mark.case("A-01")
def test_a_unified_chip_is_planned_on_with_what_is_available(fake, reader, tmp_path, no_limit):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 127600748 kB\nMemAvailable: 40000000 kB\n")
    fake.cards = [card("NVIDIA GB10", 0, cc="12.1", memory_error=3, metric_error=3)]
    fake.write()
    inventory = replace(reader, meminfo=meminfo).read()
    (each,) = machine_of(inventory, no_limit).cards
    assert each.alone
    assert each.free_bytes < 40000000 * 1024
    assert claims_of(inventory)[0].kind == "unified"


def test_slices_are_planned_on_one_by_one(fake, reader, no_limit):
    fake.cards = [card("NVIDIA A100-SXM4-80GB", 81920, cc="8.0", mig=1)]
    fake.slices = [mig_slice(0, place, f"MIG-{place}", 19968) for place in range(2)]
    fake.write()
    machine = machine_of(reader.read(), no_limit)
    placements = plan(CATALOG, machine, PlanRequest(("qwen/qwen3-8b",))).placements
    assert [placed.environment["CUDA_VISIBLE_DEVICES"] for placed in placements] == ["MIG-0", "MIG-1"]


@pytest.mark.parametrize(
    ("limit", "used", "total"), [("2147483648", "1073741824", 2048 * MIB), ("max", "1073741824", None)]
)
def test_a_containers_memory_limit_is_the_machines_memory(fake, reader, tmp_path, limit, used, total):
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(used + "\n")
    machine = machine_of(reader.read(), tmp_path)
    if total is not None:
        assert machine.ram_total_bytes == total
        assert machine.ram_available_bytes <= 1024 * MIB
    else:
        assert machine.ram_total_bytes > 2048 * MIB
