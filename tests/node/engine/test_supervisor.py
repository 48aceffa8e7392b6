"""The supervisor on a scripted engine: real processes, sockets and signals, a clock that runs fifty times as fast."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from brain_node.engine.causes import CauseKind
from brain_node.engine.events import Action
from brain_node.engine.group import Leftovers, members
from brain_node.engine.states import EngineMachine, State
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.timing import Timing
from brain_node.engine.view import EngineView
from tests.node.engine.conftest import FAST, TIMING
from tests.support.eventually import eventually
from tests.support.fake_vllm import FakeVllm, rewrite, starts_of
from tests.support.ports import free_port


def script_of(engine: EngineSupervisor) -> Path:
    return Path(engine.spec.program[-1])


def watch(engine: EngineSupervisor) -> list[EngineView]:
    seen: list[EngineView] = []
    engine.subscribe(seen.append)
    return seen


def log_of(engine: EngineSupervisor) -> str:
    return Path(engine.view().log_path).read_text()


def exists(path: str) -> bool:
    return Path(path).exists()


async def ready(engine: EngineSupervisor, limit_s: float = 20.0) -> None:
    assert await engine.wait_for_state(State.READY, timeout_s=limit_s), engine.view()


@contextlib.asynccontextmanager
async def chat(engine: EngineSupervisor) -> AsyncIterator[aiohttp.ClientResponse]:
    """A chat as the relay runs one: bytes that come count as progress."""
    job = engine.job()
    assert job is not None
    ok = False
    try:
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"{engine.view().base_url}/v1/chat/completions",
                json={"model": "test/model", "messages": [], "stream": True},
                headers={"Authorization": f"Bearer {engine.api_key}"},
                timeout=aiohttp.ClientTimeout(total=30),
            ) as answer,
        ):
            yield answer
            async for _ in answer.content.iter_any():
                job.progress()
            ok = True
    finally:
        job.finished(ok=ok)


async def test_an_engine_starts_serves_and_stops(fake_engine):
    engine = fake_engine()
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    async with chat(engine) as answer:
        assert answer.status == 200
        assert engine.view().active == 1
    assert engine.view().active == 0
    await engine.stop()
    assert [view.state for view in seen] == [
        State.STOPPED,
        State.STARTING,
        State.READY,
        State.STOPPING,
        State.STOPPED,
    ]
    assert engine.view().pid is None


async def test_the_engine_gets_a_key_of_its_own_and_none_of_our_secrets(fake_engine, around, tmp_path):
    around.base_env = os.environ | {
        "BRAIN_NODE_TOKEN": "NODE-TESTSECRET",
        "HF_TOKEN": "hf_TESTSECRET",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "LANG": "C.UTF-8",
    }
    engine = fake_engine(FakeVllm(env_to=str(tmp_path / "seen.json")))
    await engine.start()
    await ready(engine)
    text = (tmp_path / "seen.json").read_text()
    assert "TESTSECRET" not in text
    seen = json.loads(text)
    assert seen["env"]["VLLM_API_KEY"] == engine.api_key
    assert not any(engine.api_key in word for word in seen["argv"])
    assert "HTTP_PROXY" not in seen["env"]
    assert seen["env"]["LANG"] == "C.UTF-8"
    assert len(seen["env"]["TMPDIR"]) < 60
    assert engine.api_key not in log_of(engine)


async def test_the_scratch_folder_goes_with_the_engine(fake_engine, data_dir):
    engine = fake_engine(FakeVllm(child=True))
    await engine.start()
    await ready(engine)
    (record,) = (data_dir / "run" / "engines").iterdir()
    assert record.stat().st_mode & 0o077 == 0
    scratch = json.loads(record.read_text())["scratch"]
    assert exists(scratch)
    await engine.stop()
    assert not exists(scratch)
    assert not record.exists()


async def test_a_killed_root_takes_its_children_with_it_and_serves_again(fake_engine):
    engine = fake_engine(FakeVllm(child=True))
    await engine.start()
    await ready(engine)
    process = engine.record
    assert process is not None
    assert len(members(process)) == 2
    os.kill(process.pid, signal.SIGKILL)
    assert await engine.wait_for_state(State.BACKING_OFF, timeout_s=20)
    assert members(process) == []
    view = engine.view()
    assert view.cause is not None and view.cause.kind is CauseKind.KILLED
    assert "next start in" in view.sentence
    await ready(engine)
    assert engine.view().starts == 2


async def test_exit_code_zero_is_no_success(fake_engine):
    engine = fake_engine(FakeVllm(exit_when_busy=0), FakeVllm())
    await engine.start()
    await ready(engine)
    with contextlib.suppress(aiohttp.ClientError):
        async with chat(engine):
            pass
    await eventually(lambda: engine.view().starts == 2)
    cause = engine.view().cause
    assert cause is not None and cause.kind is CauseKind.ENGINE_CORE_DIED
    await ready(engine)


async def test_stopping_works_while_it_starts_and_twice(fake_engine):
    engine = fake_engine(FakeVllm(start_delay_s=600, ignore_term=True, child=True))
    await engine.start()
    assert await engine.wait_for_state(State.STARTING, timeout_s=20)
    await eventually(lambda: engine.view().pid)
    await asyncio.gather(engine.stop(), engine.stop())
    assert engine.view().state is State.STOPPED
    assert engine.view().pid is None


async def test_stopping_lets_running_jobs_finish(fake_engine):
    engine = fake_engine(FakeVllm(tokens=20, token_s=0.02))
    await engine.start()
    await ready(engine)
    async with chat(engine) as answer:
        stopping = asyncio.create_task(engine.stop(drain_s=20))
        await engine.wait_for_state(State.STOPPING, timeout_s=5)
        assert engine.job() is None
        body = await answer.read()
    await stopping
    assert body.endswith(b"data: [DONE]\n\n")


async def test_stopping_aborts_the_jobs_that_outlast_the_drain_limit(fake_engine):
    engine = fake_engine(FakeVllm(first_token_s=600))
    await engine.start()
    await ready(engine)
    job = engine.job()
    assert job is not None
    aborted = []

    async def abort() -> None:
        aborted.append(engine.view().state)
        job.finished(ok=False)

    await engine.stop(drain_s=0.05, abort=abort)
    assert aborted == [State.STOPPING]
    assert engine.view().state is State.STOPPED


async def test_an_engine_that_failed_can_be_started_again(fake_engine):
    engine = fake_engine(FakeVllm(stderr=["error: unrecognized arguments: --no-such-flag"], exit_code=2), FakeVllm())
    await engine.start()
    assert await engine.wait_for_state(State.FAILED, timeout_s=20)
    assert engine.view().next_retry_s is None
    await engine.start()
    await ready(engine)


async def test_words_about_a_job_on_a_dead_process_change_nothing(fake_engine):
    engine = fake_engine()
    await engine.start()
    await ready(engine)
    job = engine.job()
    assert job is not None
    os.kill(engine.view().pid, signal.SIGKILL)
    await eventually(lambda: engine.view().starts == 2)
    await ready(engine)
    job.progress()
    job.finished(ok=True)
    job.finished(ok=True)
    assert engine.view().active == 0


async def test_it_waits_until_what_holds_its_memory_is_gone(fake_engine, around):
    held: list[str | None] = ["GPU 0 is held by pid 4242 (stranger)"]
    engine = fake_engine(FakeVllm())

    async def check() -> str | None:
        return held[0]

    engine._executor._release_check = check
    await engine.start()
    await ready(engine)
    os.kill(engine.view().pid, signal.SIGKILL)
    await eventually(lambda: engine.view().cause and engine.view().cause.kind is CauseKind.MEMORY_HELD)
    assert "pid 4242" in engine.view().sentence
    assert engine.view().starts == 1
    held[0] = None
    await ready(engine)
    assert engine.view().starts == 2


@pytest.mark.case("B-01")
async def test_a_hung_engine_with_a_healthy_health_route_is_noticed_and_restarted(fake_engine):
    engine = fake_engine(FakeVllm(hang_after_chats=3), FakeVllm())
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    for _ in range(3):
        async with chat(engine) as answer:
            assert b"[DONE]" in await answer.read()
    await eventually(lambda: engine.view().starts == 2)
    await ready(engine)
    states = [view.state for view in seen]
    assert State.STALLED in states[: states.index(State.BACKING_OFF)]
    hung = next(view for view in seen if view.state is State.STALLED)
    assert hung.cause is not None and hung.cause.kind is CauseKind.HUNG
    assert not hung.ready


@pytest.mark.case("B-01")
async def test_a_hung_engine_is_noticed_while_jobs_wait_for_their_first_token(fake_engine, around):
    around.timing = replace(TIMING, silent_limit_s=1.5)
    engine = fake_engine(FakeVllm(hang_after_chats=0, completions=False), FakeVllm())
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    with contextlib.suppress(aiohttp.ClientError):
        async with chat(engine):
            pass
    await eventually(lambda: engine.view().starts == 2)
    hung = next(view for view in seen if view.state is State.STALLED)
    assert "no progress" in hung.cause.message
    await ready(engine)


@pytest.mark.case("B-03")
async def test_a_context_above_the_kv_cache_is_not_tried_for_ever(fake_engine):
    line = "ValueError: max length 32768 exceeds cache capacity 7344"
    engine = fake_engine(
        FakeVllm(start_delay_s=20 / FAST, stderr=[line], exit_code=1), context=32768, min_context=16384
    )
    await engine.start()
    assert await engine.wait_for_state(State.FAILED, timeout_s=20)
    view = engine.view()
    assert view.cause is not None and view.cause.kind is CauseKind.CONTEXT_ABOVE_KV
    assert "32768" in view.cause.message and "7344" in view.cause.message
    assert "--max-model-len" in view.note
    assert view.cause.evidence == (line,)
    assert starts_of(script_of(engine)) == 1
    assert engine.job() is None


@pytest.mark.case("B-03")
async def test_a_retry_with_less_context_offers_the_real_one(fake_engine, tmp_path):
    line = "ValueError: max length 32768 exceeds cache capacity 7344"
    engine = fake_engine(
        FakeVllm(stderr=[line], exit_code=1), FakeVllm(env_to=str(tmp_path / "seen.json")), context=32768
    )
    await engine.start()
    await ready(engine)
    assert engine.view().context == engine.spec.context == 7168
    assert "7168" in engine.view().note
    argv = json.loads((tmp_path / "seen.json").read_text())["argv"]
    assert argv[argv.index("--max-model-len") + 1] == "7168"


@pytest.mark.case("B-04")
async def test_a_slow_start_is_waited_for_and_shown(fake_engine, around):
    faster = 200.0
    around.timing = replace(TIMING, start_limit_s=Timing().start_limit_s / faster)
    engine = fake_engine(FakeVllm(start_delay_s=400 / faster, stderr=["Loading weights: 10 %"]))
    await engine.start()
    await eventually(lambda: engine.view().last_line)
    view = engine.view()
    assert view.state is State.STARTING
    assert view.sentence.startswith("starting, ")
    pid = view.pid
    await ready(engine, 60)
    assert engine.view().pid == pid
    assert engine.view().start_s * faster >= 400
    assert engine.view().starts == 1


@pytest.mark.case("B-04")
async def test_after_a_start_timeout_a_later_attempt_works(fake_engine, around):
    around.timing = timing_with_start_limit(60 / FAST)
    engine = fake_engine(FakeVllm(start_delay_s=400 / FAST), FakeVllm())
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    assert engine.view().starts >= 2
    kinds = {view.cause.kind for view in seen if view.cause}
    assert kinds == {CauseKind.START_TIMEOUT}


@pytest.mark.case("B-06")
async def test_a_stranger_on_the_port_is_not_taken_for_the_engine(fake_engine, around, monkeypatch):
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = b'{"data":[{"id":"test/model"}],"choices":[{}]}' if b"/v1" in head.split(b"\r\n")[0] else b"{}"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    server = await asyncio.start_server(stranger, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ports = iter([port])
    monkeypatch.setattr("brain_node.engine.executor.choose_port", lambda taken, draw: next(ports, None) or free_port())
    # The first child is slow to bind, so that for a while only the stranger answers, with the very model asked for.
    engine = fake_engine(FakeVllm(start_delay_s=600), FakeVllm())
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    assert engine.view().port != port
    assert engine.view().starts == 2
    first = [view for view in seen if view.starts == 1]
    assert State.READY not in {view.state for view in first}
    assert any(view.cause and view.cause.kind is CauseKind.PORT_TAKEN for view in seen)
    server.close()
    async with asyncio.timeout(20):  # uvloop waits for each connection: one that we kept would show here
        await server.wait_closed()


@pytest.mark.case("B-06")
async def test_an_engine_that_lists_another_model_is_not_ready(fake_engine):
    engine = fake_engine(FakeVllm(serve_as="someone/else"))
    await engine.start()
    await eventually(lambda: engine._machine._run is not None and engine._machine._run.port_note)
    assert engine.view().state is State.STARTING
    assert "someone/else" in engine._machine._run.port_note
    rewrite(script_of(engine), FakeVllm())
    await ready(engine)


@pytest.mark.case("B-06")
async def test_a_port_lost_between_check_and_bind_is_changed(fake_engine, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1]] * 2)
        monkeypatch.setattr(
            "brain_node.engine.executor.choose_port", lambda tried, draw: next(ports, None) or free_port()
        )
        engine = fake_engine()
        seen = watch(engine)
        await engine.start()
        await ready(engine)
        assert engine.view().starts == 3
        assert {view.cause.kind for view in seen if view.cause} == {CauseKind.PORT_TAKEN}
        assert "Address already in use" in log_of(engine)


@pytest.mark.case("B-06")
async def test_ports_that_keep_being_taken_end_in_a_back_off(fake_engine, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("brain_node.engine.executor.choose_port", lambda tried, draw: taken.getsockname()[1])
        engine = fake_engine()
        await engine.start()
        await eventually(lambda: "keep being taken" in engine.view().note)
        assert engine.view().starts == 6


@pytest.mark.case("B-07")
@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        (
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. Access to model acme/closed is restricted.",
            CauseKind.GATED_MODEL,
            "HF_TOKEN",
        ),
        (
            "403 Client Error: Forbidden. Your request to access model acme/closed is awaiting a review",
            CauseKind.GATED_MODEL,
            "licence",
        ),
        (
            "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. Repository Not Found for hf_abcdefghij",
            CauseKind.MISSING_MODEL,
            "gated or private",
        ),
    ],
)
async def test_a_model_we_may_not_have_stops_without_a_loop(fake_engine, line, kind, says):
    engine = fake_engine(FakeVllm(stderr=[line], exit_code=1))
    other = fake_engine(model_id="test/other")
    await engine.start()
    await other.start()
    assert await engine.wait_for_state(State.FAILED, timeout_s=20)
    view = engine.view()
    assert view.cause is not None and view.cause.kind is kind
    assert says in view.sentence + view.cause.message
    assert "hf_abcdefghij" not in json.dumps(view.as_json()) + log_of(engine)
    assert starts_of(script_of(engine)) == 1
    await ready(other)


@pytest.mark.case("B-09")
async def test_a_busy_engine_whose_health_route_is_silent_is_left_alone(fake_engine):
    engine = fake_engine(FakeVllm(health_hang_s=110 / FAST, first_token_s=110 / FAST, tokens=5))
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    pid = engine.view().pid
    async with chat(engine) as answer:
        body = await answer.read()
    assert b"word4" in body
    assert engine.view().pid == pid
    assert engine.view().state is State.READY
    assert State.STALLED not in {view.state for view in seen}


@pytest.mark.case("B-09")
async def test_a_flooded_engine_that_makes_progress_is_left_alone(fake_engine, around):
    around.timing = replace(TIMING, silent_limit_s=1.0)
    engine = fake_engine(FakeVllm(health_hang_s=600, tokens=60, token_s=0.05))
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    waiting = [engine.job() for _ in range(1280)]
    async with chat(engine) as answer:
        assert b"word59" in await answer.read()
    assert State.STALLED not in {view.state for view in seen}
    assert engine.view().starts == 1
    for job in waiting:
        job.finished(ok=True)


async def test_a_stopped_child_of_a_busy_engine_is_noticed_early(fake_engine):
    engine = fake_engine(FakeVllm(child=True, first_token_s=600), FakeVllm())
    seen = watch(engine)
    await engine.start()
    await ready(engine)
    process = engine.record
    child = next(facts.pid for facts in members(process) if facts.pid != process.pid)
    os.kill(child, signal.SIGSTOP)
    with contextlib.suppress(aiohttp.ClientError):
        async with chat(engine):
            pass
    await eventually(lambda: engine.view().starts == 2)
    hung = next(view for view in seen if view.state is State.STALLED)
    assert "stopped" in hung.cause.message


async def test_a_stalled_engine_that_wakes_up_goes_on(fake_engine, around):
    around.timing = replace(TIMING, stall_grace_s=600.0, canary_limit_s=0.5)
    engine = fake_engine(FakeVllm(hang_after_chats=0))
    rewrite(script_of(engine), FakeVllm())
    await engine.start()
    await ready(engine)
    pid = engine.view().pid
    os.kill(pid, signal.SIGSTOP)
    assert await engine.wait_for_state(State.STALLED, timeout_s=30)
    os.kill(pid, signal.SIGCONT)
    await ready(engine)
    assert engine.view().pid == pid


async def test_a_fault_of_our_own_ends_the_engine_and_is_shown(fake_engine):
    engine = fake_engine(FakeVllm(child=True))
    await engine.start()
    await ready(engine)
    process = engine.record
    engine._executor.do = None  # the next action raises in the owner
    assert await engine.wait_for_state(State.FAILED, timeout_s=20)
    assert "supervision of this engine broke" in engine.view().sentence
    await eventually(lambda: members(process) == [])
    await engine.stop()


@pytest.mark.parametrize("asked", ["stop", "drained stop"])
async def test_a_stop_ends_with_an_owner_that_breaks_over_it(fake_engine, monkeypatch, asked):
    engine = fake_engine()
    await engine.start()
    await ready(engine)
    process, job = engine.record, engine.job() if asked == "drained stop" else None

    def broken(machine: EngineMachine, now: float) -> list[Action]:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(EngineMachine, "stop", broken)
    await asyncio.wait_for(engine.stop(drain_s=10.0 if job else 0.0), 20)
    assert engine.view().state is State.FAILED
    assert members(process) == []


async def test_a_start_while_the_owner_is_just_ending_is_not_lost(fake_engine):
    engine = fake_engine()
    await engine.start()
    await ready(engine)
    engine._executor.do = None  # the next action raises in the owner
    owner = engine._owner
    await eventually(lambda: engine.view().state is State.FAILED, every_s=0)
    del engine._executor.do
    assert not owner.done()
    await asyncio.gather(engine.start(), engine.start())
    await ready(engine)
    assert engine.view().starts == 2


async def test_a_start_on_the_heels_of_a_stop_is_not_lost(fake_engine):
    engine = fake_engine()
    await engine.start()
    await ready(engine)
    stopping = asyncio.create_task(engine.stop())
    await engine.wait_for_state(State.STOPPED, timeout_s=20)
    await engine.start()
    await asyncio.wait_for(stopping, 20)
    await ready(engine)
    assert engine.view().starts == 2


async def test_an_end_that_cannot_be_tidied_up_is_an_end_all_the_same(fake_engine, data_dir):
    engine = fake_engine()
    await engine.start()
    await ready(engine)
    process = engine.record
    (record,) = (data_dir / "run" / "engines").iterdir()
    record.unlink()
    (record / "in the way").mkdir(parents=True)  # as a disk that takes no writes any more
    os.kill(process.pid, signal.SIGKILL)
    assert await engine.wait_for_state(State.BACKING_OFF, timeout_s=20)
    await eventually(lambda: engine.view().next_retry_s is not None or engine.view().starts == 2)
    shutil.rmtree(record)
    await ready(engine)
    record.unlink()
    record.mkdir()
    await asyncio.wait_for(engine.stop(), 20)
    assert engine.view().state is State.STOPPED
    assert [left.files for left in engine.leftovers] == [(str(record),)] * 2
    engine.leftovers.clear()


async def test_an_end_that_breaks_is_heard_of_all_the_same(fake_engine):
    engine = fake_engine()
    await engine.start()
    await ready(engine)
    process = engine._executor.process

    async def broken(term_grace_s: float) -> Leftovers:
        raise OSError(errno.EMFILE, "too many open files")

    process.end = broken
    os.kill(process.pid, signal.SIGKILL)
    await eventually(lambda: engine.view().starts == 2)
    await ready(engine)
    engine.leftovers.clear()


async def test_a_program_that_is_not_there_is_a_broken_install(fake_engine):
    engine = fake_engine()
    engine._machine.spec = replace(engine.spec, program=("/nowhere/python", "-m", "vllm"))
    await engine.start()
    assert await engine.wait_for_state(State.FAILED, timeout_s=20)
    assert engine.view().cause.kind is CauseKind.BROKEN_INSTALL


def timing_with_start_limit(limit_s: float):
    return replace(TIMING, start_limit_s=limit_s)
