"""`brain-node join` with launched engines, as a process: what it says of bad drivers, and what it leaves when it goes."""

import asyncio
import signal

import orjson
import psutil
import pytest

from brain_node.engine.environments import Flavour
from brain_node.exit_codes import OK, UNAVAILABLE
from brain_node.local_api.client import ask
from tests.support.eventually import eventually
from tests.support.fake_environment import make_catalog, make_environment
from tests.support.fake_nvml import FakeNvml, build, card
from tests.support.fake_vllm import FakeVllm
from tests.support.node_process import NodeProcess, brain_node
from tests.support.raw_coordinator import RawCoordinator

CHAT = orjson.dumps({"model": "test/small", "messages": [{"role": "user", "content": "hi"}], "stream": True})


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path):
    return FakeNvml(tmp_path / "machine.txt").write()


@pytest.fixture
def options(tmp_path):
    catalog = make_catalog(tmp_path / "models", small=64)
    return ("--catalog", str(catalog), "--model", "test/small")


@pytest.fixture
def env(tmp_path):
    return {"BRAIN_NODE_ENGINES_DIR": str(tmp_path / "engines")}


def engines_of(tmp_path) -> list[psutil.Process]:
    """Every process that has something of this test's engines on its command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(tmp_path / "engines") in word for word in words):
            found.append(process)
    return found


async def test_an_engine_is_launched_offered_and_gone_after_a_stop(tmp_path, options, env):
    make_environment(tmp_path / "engines", Flavour.CPU, FakeVllm(child=True))
    async with RawCoordinator() as coordinator:
        async with NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node:
            link = await coordinator.link()
            assert (await link.offered())["models"][0]["id"] == "test/small"
            reply = await (await coordinator.slot()).ask(CHAT, model="test/small")
            assert reply.end["ok"]
            state = await node.status()
            assert state["engines"][0]["pid"] in {process.pid for process in engines_of(tmp_path)}
            assert state["engine"] == {"kind": "vllm", "version": "0.32.0", "uses_cards": False}
            node.signal()
            assert await node.exit_code() == OK
        assert engines_of(tmp_path) == []


@pytest.mark.case("F-04")
async def test_a_stop_with_streams_running_lets_them_end_and_leaves_no_engine(tmp_path, options, env):
    make_environment(tmp_path / "engines", Flavour.CPU, FakeVllm(tokens=20, token_s=0.05))
    async with RawCoordinator() as coordinator:
        async with NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node:
            await (await coordinator.link()).offered()
            slots = [await coordinator.slot(), await coordinator.slot()]
            for slot in slots:
                await slot.job(CHAT, model="test/small")
                assert (await slot.next())["type"] == "accepted"
            node.signal()
            for slot in slots:
                reply = await slot.reply()
                assert reply.end["ok"]
                assert b"[DONE]" in reply.body
            assert await node.exit_code() == OK
        assert engines_of(tmp_path) == []


@pytest.mark.case("F-04")
async def test_a_second_sigterm_leaves_no_engine_either(tmp_path, options, env):
    make_environment(tmp_path / "engines", Flavour.CPU, FakeVllm(tokens=10_000, token_s=0.05, ignore_term=True))
    async with RawCoordinator() as coordinator:
        async with NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node:
            link = await coordinator.link()
            await link.offered()
            slot = await coordinator.slot()
            await slot.job(CHAT, model="test/small")
            assert (await slot.next())["type"] == "accepted"
            node.signal()
            await link.draining()
            node.signal()
            assert await node.exit_code() == OK
        assert engines_of(tmp_path) == []


async def test_what_a_killed_agent_left_is_ended_by_the_next(tmp_path, options, env):
    make_environment(tmp_path / "engines", Flavour.CPU, FakeVllm(ignore_term=True, child=True))
    async with RawCoordinator() as coordinator:
        async with NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node:
            await (await coordinator.link()).offered()
            node.signal(signal.SIGKILL)
            await node.exit_code()
        left = engines_of(tmp_path)
        assert left
        async with NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node:
            await (await coordinator.link()).offered()
            assert not {p.pid for p in left} & {p.pid for p in engines_of(tmp_path)}
            node.signal()
            assert await node.exit_code() == OK
        assert engines_of(tmp_path) == []


@pytest.mark.case("A-02")
@pytest.mark.parametrize(("error", "words"), [(18, "reboot"), (9, "modprobe"), (12, "install the NVIDIA driver")])
async def test_a_driver_that_cannot_start_is_one_plain_line_with_the_next_step(
    tmp_path, options, env, machine, library, error, words
):
    machine.system["init_error"] = error
    machine.write()
    command = ("join", "http://127.0.0.1:9", *options, "--data-dir", str(tmp_path / "data"))
    code, out, err = await brain_node(*command, env=env | machine.env(library))
    assert code == UNAVAILABLE
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("error [")]
    assert len(lines) == 1


@pytest.mark.case("D-01")
async def test_a_driver_call_that_hangs_holds_up_no_heartbeat_and_no_pong(tmp_path, machine, library):
    machine.cards = [card("NVIDIA GeForce RTX 4090", 24564)]
    machine.write()
    async with (
        RawCoordinator(heartbeat_s=0.1) as coordinator,
        NodeProcess(coordinator.url, tmp_path / "data", env=machine.env(library)) as node,
    ):
        link = await coordinator.link()
        assert (await link.next("heartbeat"))["telemetry"][0]["name"] == "NVIDIA GeForce RTX 4090"
        machine.system["hang_ms"] = 45_000
        machine.write()
        stalled, n = False, 0
        while not stalled:
            n += 1
            assert n < 1000, "the driver's silence is not told"
            await link.say("ping", n=n)
            assert (await link.next("pong"))["n"] == n
            await link.next("heartbeat")
            state = await asyncio.to_thread(ask, tmp_path / "data", "/status")
            stalled = any(each["code"] == "nvml_stalled" for each in state["problems"])
        assert not link.closed.is_set()
        assert len(coordinator.requests) <= 3  # the link and two slots: nothing had to come back
        node.signal()
        assert await node.exit_code() == OK


async def test_an_engine_that_cannot_start_is_said_in_heartbeats_and_status(tmp_path, options, env):
    make_environment(
        tmp_path / "engines", Flavour.CPU, FakeVllm(exit_code=2, stderr=["error: unrecognized arguments: --x"])
    )
    async with (
        RawCoordinator(heartbeat_s=0.2) as coordinator,
        NodeProcess(coordinator.url, tmp_path / "data", *options, env=env, engine="vllm") as node,
    ):
        link = await coordinator.link()
        while (engine := (await link.next("heartbeat"))["engines"][0])["state"] != "failed":
            pass
        assert engine["cause"]
        assert link.hello["offer"]["models"] == []
        code, out, _ = await brain_node("status", "--data-dir", str(tmp_path / "data"))
        assert code == OK
        assert engine["cause"] in out
        code, out, _ = await brain_node("logs", "test/small", "--data-dir", str(tmp_path / "data"))
        assert "unrecognized arguments" in out
        node.signal()
        assert await node.exit_code() == OK
    await eventually(lambda: engines_of(tmp_path) == [])
