"""Launched engines as a source: planned, brought up, leased, taken out and brought back."""

import json
import os
import signal
from pathlib import Path

import pytest

from brain_node.agent.vllm import NothingToServeError
from brain_node.contract.messages import Job
from brain_node.engine.environments import Flavour
from brain_node.engine.states import State
from brain_node.exit_codes import UNAVAILABLE
from brain_node.relay.relay import Relay
from tests.node.agent.conftest import sampled
from tests.support.eventually import eventually
from tests.support.fake_nvml import card, mig_slice
from tests.support.fake_vllm import FakeVllm, rewrite, starts_of
from tests.support.lines import RecordedLine

GIB = 1024


def job(model: str) -> Job:
    return Job(id="j", model=model, path="/v1/chat/completions", deadline_s=20.0, body_bytes=2)


def environment_in(path: Path) -> dict[str, str]:
    """What the fake engine wrote down of its environment."""
    seen = json.loads(path.read_text())
    return seen.get("env", seen)


async def ready(source, count=1):
    await eventually(lambda: len(source.offers()) >= count)


async def test_a_model_comes_up_on_the_cpu_and_answers(make_source):
    changes = []
    source = make_source(Flavour.CPU, {"small": 64})
    await source.start(lambda: changes.append([claim.state for claim in source.claims()]))
    assert source.offers() == []
    assert source.claim(job("test/small")) == "no_engine"
    await ready(source)
    offer = source.offers()[0]
    assert (offer.id, offer.loaded, offer.context) == ("test/small", True, 2048)
    assert changes[-1] == ["ready"]
    assert ["starting"] in changes
    relay, line = Relay(source), RecordedLine()
    relay.start(job("test/small"), (b'{"model": "test/small", "stream": true}',), line)
    await line.ended()
    relay.close()
    assert line.ok
    assert line.pieces
    assert source.claim(job("test/other")) == "no_engine"
    assert source.version == "0.32.0"


async def test_places_are_bounded_and_come_back(make_source):
    source = make_source(Flavour.CPU, {"small": 64}, slots=2)
    await source.start(lambda: None)
    await ready(source)
    leases = [source.claim(job("test/small")) for _ in range(2)]
    assert source.claim(job("test/small")) == "busy"
    for lease in leases:
        lease.progress()
        lease.finished("ok")
    assert source.claim(job("test/small")) != "busy"
    assert source.engines[0].active == 1


async def test_without_an_engine_it_says_how_to_get_one(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    with pytest.raises(NothingToServeError) as caught:
        await make_source(None, {"small": 64}).start(lambda: None)
    assert (caught.value.code, caught.value.exit_code) == ("no_engine", UNAVAILABLE)
    assert caught.value.next_step == "brain-node engine install"


@pytest.mark.case("A-02")
@pytest.mark.parametrize(("error", "words"), [(18, "reboot"), (12, "install"), (9, "modprobe")])
async def test_a_driver_that_does_not_start_is_the_reason_and_not_no_cards(make_source, machine, error, words):
    machine.system["init_error"] = error
    machine.write()
    with pytest.raises(NothingToServeError) as caught:
        await make_source(Flavour.CUDA, {"small": 64}).start(lambda: None)
    assert words in caught.value.next_step
    assert caught.value.exit_code == UNAVAILABLE


async def test_a_model_that_does_not_fit_is_refused_with_the_numbers(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4060", 8188)]
    machine.write()
    source = make_source(Flavour.CUDA, {"small": 2 * GIB, "large": 40 * GIB})
    await source.start(lambda: None)
    claim = next(claim for claim in source.claims() if claim.model == "test/large")
    assert claim.state == "failed"
    assert "GiB" in claim.cause
    await ready(source)
    with pytest.raises(NothingToServeError, match="GiB"):
        await make_source(None, {"large": 40 * GIB}).start(lambda: None)


@pytest.mark.case("A-08")
async def test_the_engine_sees_the_planned_card_by_its_uuid(make_source, machine, tmp_path):
    machine.cards = [card("NVIDIA GeForce RTX 4060", 8188), card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"large": 16 * GIB}, FakeVllm(env_to=str(tmp_path / "env")))
    await source.start(lambda: None)
    await ready(source)
    environment = environment_in(tmp_path / "env")
    assert environment["CUDA_VISIBLE_DEVICES"] == machine.uuid(1)
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert source.details()[0]["runs_on"] == ["GPU 1"]


@pytest.mark.case("A-05")
async def test_a_lost_card_takes_its_model_out_and_only_its_own_and_comes_back(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4060", 8188), card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"small": 6 * GIB, "large": 16 * GIB})
    await source.start(lambda: None)
    await ready(source, 2)
    machine.cards[1]["handle_error"] = 15
    machine.write()
    await sampled(source)
    await eventually(lambda: [offer.id for offer in source.offers()] == ["test/small"])
    claim = next(claim for claim in source.claims() if claim.model == "test/large")
    assert claim.state == "failed"
    assert "GPU 1 is lost" in claim.cause
    assert source.claim(job("test/large")) == "no_engine"
    assert source.claim(job("test/small")) != "no_engine"
    assert "GPU 1 is lost" in next(row for row in source.details() if row["lost"])["sentence"]
    lost = next(engine for engine in source.engines if engine.model_id == "test/large")
    await eventually(lambda: lost.supervisor.view().state is State.STOPPED)
    del machine.cards[1]["handle_error"]
    machine.write()
    await sampled(source)
    await ready(source, 2)


@pytest.mark.case("A-05")
async def test_a_card_that_is_back_before_its_engine_has_ended_is_used_again(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"large": 16 * GIB}, FakeVllm(ignore_term=True))
    await source.start(lambda: None)
    await ready(source)
    engine = source.engines[0]
    machine.cards[0]["handle_error"] = 15
    machine.write()
    await sampled(source)
    await eventually(lambda: engine.supervisor.view().state is State.STOPPING)
    del machine.cards[0]["handle_error"]
    machine.write()
    await sampled(source)
    await ready(source)
    assert engine.supervisor.view().starts == 2


async def test_engines_that_share_a_card_start_one_after_the_other(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"one": 6 * GIB, "two": 6 * GIB})
    seen = []
    await source.start(lambda: seen.append([engine.supervisor.view().state for engine in source.engines]))
    await eventually(lambda: "waits for its turn" in str(source.claims()[1].cause))
    assert source.claims()[1].state == "starting"
    assert source.details()[1]["state"] == "waiting"
    assert "waits for its turn" in source.details()[1]["sentence"]
    await ready(source, 2)
    assert [row["sentence"] for row in source.details()] == ["ready", "ready"]
    assert [State.READY, State.STARTING] in seen
    assert [State.STARTING, State.STARTING] not in seen, "each would count the other's memory as its own"


async def test_engines_that_share_a_card_and_crash_together_start_again_one_after_the_other(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"one": 6 * GIB, "two": 6 * GIB}, FakeVllm(start_delay_s=0.3))
    seen, said = [], set()

    def look():
        seen.append([engine.supervisor.view().state for engine in source.engines])
        said.update(row["sentence"] for row in source.details())

    await source.start(look)
    await ready(source, 2)
    for starts in (2, 3):
        for engine in source.engines:
            os.kill(engine.pid, signal.SIGKILL)
        await eventually(lambda n=starts: [engine.supervisor.view().starts for engine in source.engines] == [n, n])
        await ready(source, 2)
    assert [State.STARTING, State.STARTING] not in seen, "each would count the other's memory as its own"
    assert any("waits for its turn" in sentence for sentence in said)


@pytest.mark.case("A-05")
async def test_an_engine_whose_card_was_lost_before_its_turn_waits_for_the_card(make_source, machine, tmp_path):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"one": 6 * GIB, "two": 6 * GIB}, FakeVllm(start_delay_s=60))
    await source.start(lambda: None)
    first, second = source.engines
    await eventually(lambda: first.supervisor.view().state is State.STARTING)
    machine.cards[0]["handle_error"] = 15
    machine.write()
    await sampled(source)
    await eventually(lambda: first.supervisor.view().state is State.STOPPED and len(source._tasks) == 1)
    assert second.supervisor.view().starts == 0
    rewrite(tmp_path / "engines" / "cuda-0.32.0" / "fake-vllm.json", FakeVllm())
    del machine.cards[0]["handle_error"]
    machine.write()
    await sampled(source)
    await ready(source, 2)
    assert second.supervisor.view().starts == 1


@pytest.mark.case("A-05")
async def test_an_engine_on_a_slice_of_a_lost_card_is_taken_out_and_comes_back(make_source, machine):
    machine.cards = [card("NVIDIA A100-SXM4-80GB", 81920, cc="8.0", mig=1)]
    machine.slices = [mig_slice(0, 0, "MIG-aaaa", 9728), mig_slice(0, 1, "MIG-bbbb", 9728)]
    machine.write()
    source = make_source(Flavour.CUDA, {"small": 6 * GIB})
    await source.start(lambda: None)
    await ready(source)
    machine.cards[0]["handle_error"] = 15
    machine.write()
    await sampled(source)
    await eventually(lambda: not source.offers())
    assert "GPU 0 is lost" in source.claims()[0].cause
    await eventually(lambda: source.engines[0].supervisor.view().state is State.STOPPED)
    del machine.cards[0]["handle_error"]
    machine.write()
    await sampled(source)
    await ready(source)


async def test_what_did_not_fit_is_tried_again_when_memory_is_free(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4060", 8188), card("NVIDIA GeForce RTX 4090", 24564, used_mib=20000)]
    machine.write()
    source = make_source(Flavour.CUDA, {"small": 6 * GIB, "large": 16 * GIB})
    await source.start(lambda: None)
    await ready(source)
    assert [refusal.model_id for refusal in source.refusals] == ["test/large"]
    machine.cards[1]["used"] = 0
    machine.write()
    await sampled(source)
    await ready(source, 2)
    assert source.refusals == ()


async def test_memory_that_somebody_else_took_keeps_an_engine_from_starting_into_it(make_source, machine, tmp_path):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"large": 16 * GIB})
    await source.start(lambda: None)
    await ready(source)
    machine.cards[0]["used"] = 20000 << 20
    machine.processes = [{"gpu": 0, "pid": 1, "used": 20000 << 20}]
    machine.write()
    os.kill(source.engines[0].pid, signal.SIGKILL)
    await eventually(lambda: "held by process 1" in str(source.details()[0]))
    assert starts_of(tmp_path / "engines" / "cuda-0.32.0" / "fake-vllm.json") == 1
    assert source.offers() == []
    machine.cards[0]["used"] = 0
    machine.write()
    await ready(source)


async def test_replicas_share_the_jobs(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564), card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"large": 16 * GIB}, replicas=True)
    await source.start(lambda: None)
    await eventually(lambda: source.offers() and len(source.engines) == 2 and all(e.ready for e in source.engines))
    assert len(source.offers()) == 1
    assert source.offers()[0].slots == sum(engine.placement.slots for engine in source.engines)
    urls = {source.claim(job("test/large")).endpoint.base_url for _ in range(2)}
    assert len(urls) == 2


@pytest.mark.case("A-07")
async def test_the_engines_own_memory_does_not_count_as_used_by_others(make_source, machine):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    source = make_source(Flavour.CUDA, {"large": 16 * GIB})
    await source.start(lambda: None)
    await ready(source)
    machine.cards[0]["used"] = 17000 << 20
    machine.processes = [{"gpu": 0, "pid": source.engines[0].pid, "used": 17000 << 20}]
    machine.write()
    await sampled(source)
    assert source._hardware.inventory.gpus[0].used_by_others_bytes == 0
