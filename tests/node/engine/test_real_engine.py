"""The supervisor on a real vLLM: what is killed, stopped or robbed of its port serves again, and nothing stays behind."""

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from brain_node.engine import executor, proc_table
from brain_node.engine.causes import CauseKind
from brain_node.engine.group import members
from brain_node.engine.run_record import RunRecord
from brain_node.engine.spec import EngineSpec, vllm_program
from brain_node.engine.states import State
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.surroundings import Surroundings
from brain_node.engine.timing import Timing
from tests.support.eventually import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

START_LIMIT_S = 240.0
"""Wide: several engines may start at once on two cores."""


@pytest.fixture
def spec(engine_env, known_text_model) -> EngineSpec:
    return EngineSpec(
        "test/known-text",
        known_text_model.path,
        vllm_program(engine_env),
        engine_env.flavour,
        kv_cache_bytes=64 << 20,
        eager=True,
    )


@pytest.fixture
def surroundings(tmp_path) -> Surroundings:
    timing = replace(Timing(), canary_idle_s=3.0, look_ready_s=1.0, backoff_first_s=0.5)
    return Surroundings(tmp_path / "data", timing=timing)


@pytest.fixture
async def engine(spec, surroundings, tmp_path):
    made = EngineSupervisor(spec, surroundings)
    yield made
    await made.stop()
    assert made.leftovers == []
    assert list((tmp_path / "data" / "run" / "engines").glob("*.json")) == []


async def ask(engine: EngineSupervisor, **extra: object) -> str:
    body = {"model": "test/known-text", "messages": [{"role": "user", "content": "Hello"}], **extra}
    async with (
        aiohttp.ClientSession(trust_env=False) as client,
        client.post(
            f"{engine.view().base_url}/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {engine.api_key}"},
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return (await answer.json())["choices"][0]["message"]["content"]


async def ready(engine: EngineSupervisor) -> None:
    assert await engine.wait_for_state(State.READY, timeout_s=START_LIMIT_S), engine.view()


def record_of(engine: EngineSupervisor) -> RunRecord:
    assert engine.record is not None
    return engine.record


def engine_core(engine: EngineSupervisor) -> int:
    return next(facts.pid for facts in members(record_of(engine)) if "EngineCore" in proc_table.command_line(facts.pid))


def files_of(record: RunRecord) -> list[Path]:
    """What is still there of an engine's scratch folder and shared memory."""
    places = [Path(record.scratch), *(Path("/dev/shm") / name for name in record.shared_memory)]
    return [place for place in places if place.exists()]


async def next_process(engine: EngineSupervisor, before: RunRecord) -> CauseKind:
    """Wait until the process after `before` serves; gives the cause that was named for the end of `before`."""
    await eventually(lambda: engine.view().pid not in (None, before.pid), START_LIMIT_S)
    assert members(before) == [], "something of the old group still runs"
    assert files_of(before) == []
    await ready(engine)
    cause = engine.view().cause
    assert cause is not None
    return cause.kind


async def test_a_real_engine_serves_survives_and_leaves_nothing(engine, known_text_model):
    await engine.start()
    await ready(engine)
    assert await ask(engine) == known_text_model.sentence
    async with aiohttp.ClientSession() as client, client.get(f"{engine.view().base_url}/v1/models") as answer:
        assert answer.status == 401

    before = record_of(engine)
    assert len(members(before)) >= 2
    os.kill(before.pid, signal.SIGKILL)
    assert await next_process(engine, before) is CauseKind.KILLED
    assert await ask(engine) == known_text_model.sentence

    before = record_of(engine)
    os.kill(engine_core(engine), signal.SIGKILL)
    assert await next_process(engine, before) is CauseKind.ENGINE_CORE_DIED
    assert await ask(engine) == known_text_model.sentence

    before = record_of(engine)
    os.kill(engine_core(engine), signal.SIGSTOP)  # its health route goes on saying 200
    assert await next_process(engine, before) is CauseKind.HUNG
    assert await ask(engine) == known_text_model.sentence

    before = record_of(engine)
    await engine.stop()
    assert members(before) == []
    assert engine.view().state is State.STOPPED


async def test_a_real_engine_stops_with_streams_open_and_while_it_loads(engine, known_text_model):
    await engine.start()
    await eventually(lambda: engine.view().pid and len(members(record_of(engine))) > 1, START_LIMIT_S)
    before = record_of(engine)
    async with asyncio.timeout(30):
        await engine.stop()
    assert members(before) == []

    await engine.start()
    await ready(engine)
    before = record_of(engine)
    job = engine.job()
    assert job is not None
    stream = asyncio.create_task(ask(engine, max_tokens=8000, ignore_eos=True))
    await asyncio.sleep(0.5)

    async def abort() -> None:
        stream.cancel()
        await asyncio.wait([stream])
        job.finished(ok=False)

    async with asyncio.timeout(60):
        await engine.stop(drain_s=0.2, abort=abort)
    assert members(before) == []


async def test_a_real_engine_whose_port_was_stolen_takes_another(engine, known_text_model, monkeypatch):
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        stolen = thief.getsockname()[1]
        real, ports = executor.choose_port, iter([stolen])
        monkeypatch.setattr(executor, "choose_port", lambda taken, draw: next(ports, None) or real(taken, draw))
        await engine.start()
        await eventually(lambda: engine.view().starts == 2 and engine.view().pid, START_LIMIT_S)
        assert engine.view().cause.kind is CauseKind.PORT_TAKEN
        await ready(engine)
        assert engine.view().port != stolen
        assert await ask(engine) == known_text_model.sentence


async def test_a_real_engines_context_is_lowered_to_what_its_cache_holds(surroundings, spec, smollm2_model):
    small = replace(spec, model_id="test/smollm2", model_path=smollm2_model.path, context=8192, kv_cache_bytes=64 << 20)
    other = EngineSupervisor(small, surroundings)
    try:
        await other.start()
        await ready(other)
        assert 1024 <= other.view().context < 8192
        async with (
            aiohttp.ClientSession() as client,
            client.get(
                f"{other.view().base_url}/v1/models", headers={"Authorization": f"Bearer {other.api_key}"}
            ) as answer,
        ):
            (model,) = (await answer.json())["data"]
        assert model["max_model_len"] == other.view().context
    finally:
        await other.stop()
