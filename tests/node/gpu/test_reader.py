"""What the agent makes of what the driver says, through the real binding."""

import json
import subprocess
from dataclasses import replace

import pytest

from brain_node.gpu.library import Platform
from brain_node.gpu.reader import GpuReader
from brain_node.gpu.records import GpuKind, GpuState
from tests.support.fake_nvml import MIB, card, mig_slice

GB10_MEMINFO = "MemTotal:       127600748 kB\nMemFree:         1000000 kB\nMemAvailable:   {available} kB\n"


def problem_codes(inventory):
    return [problem.code for problem in inventory.problems]


class TestAHealthyCard:
    def test_is_told_whole(self, fake, reader):
        fake.cards = [
            card(
                "NVIDIA GeForce RTX 4090",
                24564,
                used_mib=612,
                reserved_mib=400,
                util=7,
                temp=51,
                power_mw=81500,
                limit_mw=450000,
                bus="00000000:01:00.0",
            )
        ]
        fake.write()
        inventory = reader.read()
        (gpu,) = inventory.gpus
        assert (gpu.index, gpu.uuid, gpu.name) == (0, fake.uuid(0), "NVIDIA GeForce RTX 4090")
        assert (gpu.kind, gpu.state, gpu.reason) == (GpuKind.DISCRETE, GpuState.OK, None)
        assert (gpu.total_bytes, gpu.reserved_bytes, gpu.used_by_others_bytes) == (24564 * MIB, 400 * MIB, 612 * MIB)
        assert gpu.free_bytes == (24564 - 612 - 400) * MIB
        assert (gpu.utilization_percent, gpu.temperature_c) == (7, 51)
        assert (gpu.power_w, gpu.power_limit_w) == (81.5, 450.0)
        assert gpu.compute_capability == (8, 9)
        assert gpu.pci_bus_id == "00000000:01:00.0"
        assert (inventory.driver, inventory.cuda, inventory.problems) == ("580.65.06", "13.0", ())

    def test_is_read_anew_every_time(self, fake, reader):
        fake.cards = [card("A", 8188)]
        fake.write()
        before = reader.read().gpus[0].free_bytes
        fake.cards[0]["used"] = 1000 * MIB
        fake.write()
        assert reader.read().gpus[0].free_bytes == before - 1000 * MIB

    def test_what_the_driver_does_not_tell_is_unknown_and_not_zero(self, fake, reader):
        fake.cards = [card("A", 8188, metric_error=3)]
        fake.write()
        (gpu,) = reader.read().gpus
        assert (gpu.utilization_percent, gpu.temperature_c, gpu.power_w, gpu.power_limit_w) == (None,) * 4
        assert gpu.state is GpuState.OK

    def test_survives_a_driver_that_lacks_every_optional_call(self, fake, reader):
        fake.cards = [card("A", 8188)]
        fake.missing = [
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetPciInfo_v3",
            "nvmlDeviceGetUtilizationRates",
            "nvmlSystemGetCudaDriverVersion_v2",
        ]
        fake.write()
        inventory = reader.read()
        assert inventory.gpus[0].state is GpuState.OK
        assert inventory.gpus[0].total_bytes == 8188 * MIB
        assert inventory.cuda == "13.0"


class TestOurOwnEngines:
    def test_are_not_others(self, fake):
        fake.cards = [card("A", 24564, used_mib=20000, reserved_mib=300)]
        fake.processes = [
            {"gpu": 0, "pid": 41, "used": 18000 * MIB},
            {"gpu": 0, "pid": 7, "used": 2000 * MIB, "kind": "graphics"},
        ]
        fake.write()
        reader = GpuReader(own_pids=lambda: {41}, environment={}, platform=Platform(wsl=False))
        (gpu,) = reader.read().gpus
        assert gpu.used_by_others_bytes == 2000 * MIB
        assert [(process.pid, process.used_bytes) for process in gpu.processes] == [(7, 2000 * MIB), (41, 18000 * MIB)]

    def test_a_process_of_unknown_size_is_shown_as_unknown(self, fake, reader):
        fake.cards = [card("A", 8188, used_mib=500)]
        fake.processes = [{"gpu": 0, "pid": 7, "used": "none"}]
        fake.write()
        (gpu,) = reader.read().gpus
        assert gpu.processes[0].used_bytes is None
        assert gpu.used_by_others_bytes == 500 * MIB


@pytest.mark.case("A-07")
class TestReservedMemory:
    def test_is_nobody_elses(self, fake, reader):
        fake.cards = [card("A", 16384, reserved_mib=308)]
        fake.write()
        (gpu,) = reader.read().gpus
        assert (gpu.used_by_others_bytes, gpu.reserved_bytes, gpu.free_bytes) == (0, 308 * MIB, 16076 * MIB)

    def test_reads_the_same_from_a_driver_without_the_newer_call(self, fake, old_library, gpus_of_child):
        fake.cards = [card("A", 16384, reserved_mib=308)]
        fake.write()
        result = gpus_of_child(fake.env(old_library))
        (gpu,) = result["gpus"]
        assert (gpu["used_by_others_bytes"], gpu["reserved_bytes"], gpu["free_bytes"]) == (0, 308 * MIB, 16076 * MIB)
        assert result["problems"] == []

    def test_a_neighbour_is_still_seen_without_the_newer_call(self, fake, reader):
        fake.cards = [card("A", 16384, reserved_mib=308, used_mib=4000)]
        fake.processes = [{"gpu": 0, "pid": 99, "used": 4000 * MIB}]
        fake.missing = ["nvmlDeviceGetMemoryInfo_v2"]
        fake.write()
        (gpu,) = reader.read().gpus
        assert (gpu.used_by_others_bytes, gpu.reserved_bytes) == (4000 * MIB, 308 * MIB)

    @pytest.mark.parametrize("missing", [[], ["nvmlDeviceGetMemoryInfo_v2"]], ids=["newer call", "old call"])
    def test_the_parts_add_up(self, fake, reader, missing):
        fake.cards = [card("A", 24564, reserved_mib=441, used_mib=612)]
        fake.processes = [{"gpu": 0, "pid": 9, "used": 612 * MIB, "kind": "graphics"}]
        fake.missing = missing
        fake.write()
        (gpu,) = reader.read().gpus
        assert gpu.reserved_bytes + gpu.used_by_others_bytes + gpu.free_bytes == gpu.total_bytes


@pytest.mark.case("A-01")
class TestUnifiedMemory:
    @pytest.fixture
    def gb10(self, fake, tmp_path):
        fake.cards = [card("NVIDIA GB10", 0, cc="12.1", memory_error=3, metric_error=3)]
        fake.write()

        def read(available_kb: int):
            meminfo = tmp_path / "meminfo"
            meminfo.write_text(GB10_MEMINFO.format(available=available_kb))
            return GpuReader(environment={}, platform=Platform(wsl=False), meminfo=meminfo).read()

        return read

    def test_is_labelled_and_follows_what_is_available(self, gb10):
        inventory = gb10(118566368)
        (gpu,) = inventory.gpus
        assert (gpu.kind, gpu.state, inventory.problems) == (GpuKind.UNIFIED, GpuState.OK, ())
        assert gpu.total_bytes == 127600748 * 1024
        assert 0 < gpu.free_bytes < 118566368 * 1024

    def test_is_not_all_ours_when_other_programs_hold_most_of_it(self, gb10):
        (gpu,) = gb10(40000000).gpus
        assert 0 < gpu.free_bytes < 36 * 1000**3
        assert gpu.used_by_others_bytes == (127600748 - 40000000) * 1024

    def test_never_goes_below_nothing(self, gb10):
        (gpu,) = gb10(1000).gpus
        assert gpu.free_bytes == 0

    def test_power_and_load_that_are_not_supported_are_unknown(self, gb10):
        (gpu,) = gb10(118566368).gpus
        assert (gpu.power_w, gpu.utilization_percent, gpu.temperature_c) == (None, None, None)

    def test_ram_is_not_counted_as_the_cards_even_when_the_driver_says_so(self, fake, tmp_path):
        meminfo = tmp_path / "meminfo"
        meminfo.write_text(GB10_MEMINFO.format(available=40000000))
        fake.cards = [card("NVIDIA GB10", 124609, cc="12.1")]
        fake.write()
        (gpu,) = GpuReader(environment={}, platform=Platform(wsl=False), meminfo=meminfo).read().gpus
        assert gpu.free_bytes < 40000000 * 1024

    def test_a_discrete_card_without_figures_is_not_filled_up_from_ram(self, fake, reader):
        fake.cards = [card("NVIDIA GeForce RTX 3060", 0, cc="8.6", memory_error=3)]
        fake.write()
        inventory = reader.read()
        (gpu,) = inventory.gpus
        assert (gpu.kind, gpu.state, gpu.total_bytes, gpu.free_bytes) == (
            GpuKind.DISCRETE,
            GpuState.UNSUPPORTED,
            None,
            None,
        )
        assert problem_codes(inventory) == ["gpu_unsupported"]


@pytest.mark.case("A-05")
class TestALostCard:
    @pytest.mark.parametrize("where", ["error", "handle_error"])
    def test_does_not_hide_the_others(self, fake, reader, where):
        fake.cards = [card(f"Card {index}", 24564) for index in range(4)]
        fake.write()
        before = reader.read()
        fake.cards[2][where] = 15
        fake.write()
        after = reader.read()
        assert [gpu.state for gpu in after.gpus] == [GpuState.OK, GpuState.OK, GpuState.LOST, GpuState.OK]
        lost = after.gpus[2]
        assert (lost.uuid, lost.name) == (before.gpus[2].uuid, "Card 2")
        assert "fell off the bus" in lost.reason
        assert (lost.total_bytes, lost.free_bytes) == (None, None)
        assert [after.gpus[index] for index in (0, 1, 3)] == [before.gpus[index] for index in (0, 1, 3)]
        assert problem_codes(after) == ["gpu_lost"]

    def test_at_the_first_look_keeps_its_place(self, fake, reader):
        fake.cards = [card("A", 24564, handle_error=15), card("B", 24564)]
        fake.write()
        lost, healthy = reader.read().gpus
        assert (lost.state, lost.uuid, healthy.index, healthy.state) == (GpuState.LOST, None, 1, GpuState.OK)

    def test_that_comes_back_is_whole_again(self, fake, reader):
        fake.cards = [card("A", 24564)]
        fake.write()
        before = reader.read()
        fake.cards[0]["error"] = 15
        fake.write()
        reader.read()
        del fake.cards[0]["error"]
        fake.write()
        assert reader.read() == before

    def test_that_the_driver_forgets_is_lost_and_not_forgotten(self, fake, reader):
        fake.cards = [card("A", 24564), card("B", 8188)]
        fake.write()
        reader.read()
        del fake.cards[1]
        fake.write()
        inventory = reader.read()
        assert [(gpu.name, gpu.state) for gpu in inventory.gpus] == [("A", GpuState.OK), ("B", GpuState.LOST)]

    def test_that_a_driver_loaded_anew_misses_is_told_from_those_that_moved_up(self, fake, reader):
        fake.cards = [card(name, 24564, uuid=f"GPU-{name}") for name in "ABCD"]
        fake.write()
        reader.read()
        missing = fake.cards.pop(1)
        fake.write()
        for _ in range(2):
            inventory = reader.read()
            assert {gpu.uuid: gpu.state for gpu in inventory.usable} == dict.fromkeys(
                ["GPU-A", "GPU-C", "GPU-D"], GpuState.OK
            )
            (lost,) = [gpu for gpu in inventory.gpus if gpu.state is GpuState.LOST]
            assert (lost.uuid, lost.reason) == ("GPU-B", "the driver no longer lists it")
        fake.cards.insert(1, missing)
        fake.write()
        assert [gpu.uuid for gpu in reader.read().usable] == ["GPU-A", "GPU-B", "GPU-C", "GPU-D"]

    def test_a_card_of_somebody_else_is_not_lost(self, fake, reader):
        fake.cards = [card("A", 24564), card("B", 8188, handle_error=4)]
        fake.write()
        inventory = reader.read()
        assert [gpu.state for gpu in inventory.gpus] == [GpuState.OK, GpuState.UNSUPPORTED]
        assert problem_codes(inventory) == ["gpu_forbidden"]

    def test_a_card_without_a_uuid_cannot_be_given_to_an_engine_and_says_so(self, fake, reader):
        fake.cards = [card("A", 24564)]
        fake.missing = ["nvmlDeviceGetUUID"]
        fake.write()
        inventory = reader.read()
        assert inventory.usable == ()
        assert "UUID" in inventory.problems[0].message


class TestMig:
    @pytest.fixture
    def sliced(self, fake):
        fake.cards = [
            card("NVIDIA A100-SXM4-80GB", 81920, cc="8.0", mig=1),
            card("NVIDIA A100-SXM4-80GB", 81920, cc="8.0", mig=0),
        ]
        fake.slices = [mig_slice(0, 0, "MIG-aaaa", 9728), mig_slice(0, 2, "MIG-bbbb", 19968, used_mib=100)]
        fake.write()
        return fake

    def test_slices_stand_for_their_card(self, sliced, reader):
        first, second, whole = reader.read().gpus
        assert [(gpu.uuid, gpu.kind, gpu.index, gpu.mig_index) for gpu in (first, second)] == [
            ("MIG-aaaa", GpuKind.MIG, 0, 0),
            ("MIG-bbbb", GpuKind.MIG, 0, 2),
        ]
        assert first.parent_uuid == sliced.uuid(0)
        assert (second.total_bytes, second.free_bytes) == (19968 * MIB, 19868 * MIB)
        assert (whole.kind, whole.uuid) == (GpuKind.DISCRETE, sliced.uuid(1))

    def test_a_lost_card_takes_its_slices_along(self, sliced, reader):
        reader.read()
        sliced.cards[0]["handle_error"] = 15
        sliced.write()
        inventory = reader.read()
        assert [(gpu.uuid, gpu.state) for gpu in inventory.gpus[:2]] == [
            ("MIG-aaaa", GpuState.LOST),
            ("MIG-bbbb", GpuState.LOST),
        ]
        assert problem_codes(inventory) == ["gpu_lost"]

    def test_a_card_in_mig_mode_without_slices_can_run_nothing(self, sliced, reader):
        sliced.slices = []
        sliced.write()
        inventory = reader.read()
        assert inventory.gpus[0].state is GpuState.UNSUPPORTED
        assert problem_codes(inventory) == ["mig_without_slices"]
        assert [gpu.index for gpu in inventory.usable] == [1]


@pytest.mark.case("A-08")
class TestTheOperatorsRestriction:
    def test_hides_the_cards_it_does_not_name(self, fake, reader):
        fake.cards = [card("Small", 8188), card("Big", 24564)]
        fake.write()
        restricted = replace(reader, environment={"CUDA_VISIBLE_DEVICES": fake.uuid(0)})
        inventory = restricted.read()
        assert [(gpu.name, gpu.visible) for gpu in inventory.gpus] == [("Small", True), ("Big", False)]
        assert [gpu.name for gpu in inventory.usable] == ["Small"]

    def test_by_index_on_unlike_cards_is_read_in_bus_order_and_said_so(self, fake, reader):
        fake.cards = [card("Small", 8188), card("Big", 24564)]
        fake.write()
        by_index = replace(reader, environment={"CUDA_VISIBLE_DEVICES": "0"})
        inventory = by_index.read()
        assert [gpu.name for gpu in inventory.usable] == ["Small"]
        assert problem_codes(inventory) == ["visible_devices_order"]
        ordered = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert replace(reader, environment=ordered).read().problems == ()

    def test_keeps_the_order_it_gives(self, fake, reader):
        fake.cards = [card("Same", 24564) for _ in range(3)]
        fake.write()
        chosen = replace(reader, environment={"CUDA_VISIBLE_DEVICES": "2,0"})
        assert [gpu.index for gpu in chosen.read().usable] == [2, 0]

    @pytest.mark.parametrize(
        ("value", "code"), [("", "visible_devices_none"), ("5", "visible_devices_none"), ("0,7", "visible_devices_cut")]
    )
    def test_that_names_nothing_is_told(self, fake, reader, value, code):
        fake.cards = [card("A", 8188)]
        fake.write()
        assert problem_codes(replace(reader, environment={"CUDA_VISIBLE_DEVICES": value}).read()) == [code]

    def test_a_lost_card_keeps_its_index(self, fake, reader):
        fake.cards = [card("A", 8188, handle_error=15), card("A", 8188)]
        fake.write()
        chosen = replace(reader, environment={"CUDA_VISIBLE_DEVICES": "1"}).read()
        assert [gpu.index for gpu in chosen.usable] == [1]


@pytest.mark.case("A-02")
class TestADriverThatCannotStart:
    @pytest.mark.parametrize(
        ("error", "code", "step"),
        [
            (18, "nvml_version_mismatch", "reboot"),
            (9, "nvml_driver_not_loaded", "modprobe nvidia"),
            (4, "nvml_no_permission", "/dev/nvidia"),
            (999, "nvml_failed", "reboot"),
        ],
    )
    def test_says_why_and_what_to_do(self, fake, reader, error, code, step):
        fake.system["init_error"] = error
        fake.write()
        inventory = reader.read()
        (problem,) = inventory.problems
        assert (problem.code, inventory.gpus) == (code, ())
        assert step in problem.next_step
        assert "\n" not in problem.message + problem.next_step

    def test_is_tried_again_at_the_next_look(self, fake, reader):
        fake.cards = [card("A", 8188)]
        fake.system["init_error"] = 9
        fake.write()
        reader.read()
        fake.system["init_error"] = 0
        fake.write()
        assert [gpu.name for gpu in reader.read().gpus] == ["A"]

    def test_on_wsl_the_copies_that_windows_provides_are_tried_and_named(self, fake, tmp_path):
        fake.system["init_error"] = 9
        fake.write()
        paths = (str(tmp_path / "lib" / "libnvidia-ml.so.1"), str(tmp_path / "none" / "*" / "libnvidia-ml.so.1"))
        inventory = GpuReader(environment={}, platform=Platform(wsl=True, wsl_libraries=paths)).read()
        (problem,) = inventory.problems
        assert problem.code == "nvml_driver_not_loaded"
        assert all(path in problem.message for path in ("libnvidia-ml.so.1", *paths))
        assert "Windows" in problem.next_step

    def test_on_wsl_a_useless_stub_in_front_does_not_hide_the_real_library(
        self, fake, library, tmp_path, gpus_of_child
    ):
        stub = tmp_path / "stub" / "libnvidia-ml.so.1"
        stub.parent.mkdir()
        source = tmp_path / "stub.c"
        source.write_text(
            'int nvmlInitWithFlags(unsigned f) { return 9 + 0 * (int)f; }\nconst char *nvmlErrorString(int c) { return c ? "stub" : ""; }\n'
        )
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(stub), str(source)], check=True)
        fake.cards = [card("Real", 8188)]
        fake.write()
        result = gpus_of_child(fake.env(stub), wsl_library=library)
        assert [gpu["name"] for gpu in result["gpus"]] == ["Real"]
        assert result["problems"] == []

    def test_a_machine_without_the_library_is_told_to_install_the_driver(self, fake, gpus_of_child):
        result = gpus_of_child({"PATH": "/usr/bin"})
        (problem,) = result["problems"]
        assert problem["code"] == "nvml_library_not_found"
        assert "install the NVIDIA driver" in problem["next_step"]
        assert json.dumps(result["gpus"]) == "[]"

    def test_a_driver_that_lists_nothing_is_not_a_normal_zero(self, fake, reader):
        assert problem_codes(reader.read()) == ["no_gpu"]

    def test_cards_of_a_driver_that_stops_answering_are_lost(self, fake, reader):
        fake.cards = [card("A", 8188)]
        fake.write()
        reader.read()
        fake.missing = ["nvmlDeviceGetCount_v2"]
        fake.write()
        inventory = reader.read()
        assert [(gpu.name, gpu.state) for gpu in inventory.gpus] == [("A", GpuState.LOST)]
        assert problem_codes(inventory) == ["nvml_failed"]
