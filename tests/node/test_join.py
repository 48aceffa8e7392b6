"""`brain-node join` as a process: joining, draining, stopping, and what it leaves behind."""

import asyncio
import resource
import signal
import stat

import orjson
import pytest

from brain_node.exit_codes import AUTH_REFUSED, CONFIG, OK, TEMPORARY, UNAVAILABLE, USAGE
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, stream
from tests.support.node_process import NodeProcess, brain_node
from tests.support.raw_coordinator import RawCoordinator

CHAT = orjson.dumps({"model": "brain/mock", "messages": [{"role": "user", "content": "hi"}], "stream": True})
LONG = orjson.dumps({**orjson.loads(CHAT), "max_tokens": 150, "ignore_eos": True})


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


async def test_a_mock_node_joins_and_answers(data_dir):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir):
        link = await coordinator.link()
        assert link.hello["offer"]["models"] == [{"id": "brain/mock", "loaded": True, "slots": 8}]
        reply = await (await coordinator.slot()).ask(CHAT)
        assert reply.end["ok"]
        assert b"mock: no " in reply.body.replace(b'"},"finish_reason":null}]}\n\n', b"") or b"mock" in reply.body


async def test_an_attached_server_is_offered_under_the_catalogs_name(data_dir):
    async def script(request, body):
        assert orjson.loads(body)["model"] == "served-name"
        return await stream(request, [b'data: {"model":"served-name"}\n\n', b"data: [DONE]\n\n"])

    model = "qwen/qwen2.5-7b-instruct"
    async with FakeEngine(script) as engine, RawCoordinator() as coordinator:
        options = ("--engine-url", engine.url, "--serve", f"{model}=served-name", "--slots", "3", "--region", "eu")
        async with NodeProcess(coordinator.url, data_dir, *options, engine="attach"):
            link = await coordinator.link()
            offer = await link.offered()
            assert (offer["models"][0]["id"], offer["slots"], offer["region"]) == (model, 3, "eu")
            reply = await (await coordinator.slot()).ask(CHAT.replace(b"brain/mock", model.encode()), model=model)
    assert reply.body == b'data: {"model":"%s"}\n\ndata: [DONE]\n\n' % model.encode()


@pytest.mark.case("F-04")
async def test_a_bad_token_ends_it_with_the_code_that_is_not_restarted(data_dir):
    async with RawCoordinator() as coordinator:
        coordinator.on_hello = lambda link: link.say("refused", code="bad_token", message="unknown", retry=False)
        async with NodeProcess(coordinator.url, data_dir, env={"BRAIN_NODE_TOKEN": "NODE-TESTSECRET"}) as node:
            assert await node.exit_code() == AUTH_REFUSED
            assert "bad_token" in node.output
            assert "--token-file" in node.output


@pytest.mark.case("F-04")
async def test_a_coordinator_that_is_down_is_waited_for_and_status_works_meanwhile(data_dir):
    coordinator = RawCoordinator()
    await coordinator.start()
    await coordinator.stop()
    async with NodeProcess(coordinator.url, data_dir) as node:
        await eventually((data_dir / "agent.sock").exists)
        state = await node.status()
        while state["coordinator"]["fault"] is None:
            state = await node.status()
        assert state["coordinator"]["state"] in ("waiting", "connecting")
        assert state["coordinator"]["fault"]["code"] == "refused"
        code, out, _ = await brain_node("status", "--data-dir", str(data_dir))
        assert code == OK
        assert "nothing listens" in out
        await coordinator.start()
        await coordinator.link()
    await coordinator.stop()


@pytest.mark.case("F-04")
async def test_sigterm_lets_streams_end_takes_no_jobs_says_so_and_exits_with_0(data_dir):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir) as node:
        link = await coordinator.link()
        first, second = await coordinator.slot(), await coordinator.slot()
        for slot in (first, second):
            await slot.job(LONG)
            assert (await slot.next())["type"] == "accepted"
        third = await coordinator.slot()
        node.signal()
        await link.draining()
        refused = await third.ask(CHAT)
        assert (refused.accepted, refused.end["cause"]) == (False, "draining")
        for slot in (first, second):
            reply = await slot.reply()
            assert reply.end["ok"]
            assert reply.body.endswith(b"data: [DONE]\n\n")
        assert await node.exit_code() == OK
    assert not (data_dir / "agent.sock").exists()


@pytest.mark.case("F-04")
async def test_a_second_sigterm_ends_it_at_once(data_dir):
    endless = orjson.dumps({**orjson.loads(CHAT), "max_tokens": 10**6, "ignore_eos": True})
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir) as node:
        link, slot = await coordinator.link(), await coordinator.slot()
        await slot.job(endless)
        assert (await slot.next())["type"] == "accepted"
        node.signal()
        await link.draining()
        node.signal()
        assert await node.exit_code() == OK
        await slot.socket.wait_closed()


@pytest.mark.case("F-04")
async def test_the_drain_limit_is_kept(data_dir):
    endless = orjson.dumps({**orjson.loads(CHAT), "max_tokens": 10**6, "ignore_eos": True})
    async with (
        RawCoordinator() as coordinator,
        NodeProcess(coordinator.url, data_dir, "--drain-timeout", "0.2") as node,
    ):
        slot = await coordinator.slot()
        await slot.job(endless)
        assert (await slot.next())["type"] == "accepted"
        node.signal(signal.SIGINT)
        assert await node.exit_code() == OK
        assert "streams_cut" in node.output


@pytest.mark.case("F-03")
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
async def test_what_it_writes_is_private_under_any_umask(data_dir, umask):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir, umask=umask):
        await coordinator.link()
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE((data_dir / "logs").stat().st_mode) == 0o700
        for name in ("node.key", "agent.sock", "agent.lock", "logs/agent.log"):
            assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600, name


@pytest.mark.case("D-10")
@pytest.mark.parametrize("level", ["info", "debug"])
async def test_no_secret_is_written_anywhere(data_dir, tmp_path, level):
    token = tmp_path / "token"
    token.write_text("NODE-TESTSECRET\n")
    token.chmod(0o600)
    env = {"HF_TOKEN": "HUB-TESTSECRET", "BRAIN_NODE_ENGINE_KEY": "ENGINE-TESTSECRET"}
    async with RawCoordinator() as coordinator:
        options = ("--token-file", str(token), "--log-level", level)
        async with NodeProcess(coordinator.url, data_dir, *options, env=env) as node:
            link, slot = await coordinator.link(), await coordinator.slot()
            assert link.hello["token"] == "NODE-TESTSECRET"
            await slot.ask(CHAT)
            await link.say("notice", code="echo", message="you said NODE-TESTSECRET")
            assert "TESTSECRET" not in node.command_line
            looked = asyncio.Event()

            async def refuse_once_looked_at(again):
                await looked.wait()
                await again.say("refused", code="bad_token", message="no", retry=False)

            coordinator.on_hello = refuse_once_looked_at
            await link.socket.close(1008, "bad NODE-TESTSECRET")
            assert "TESTSECRET" not in orjson.dumps(await node.status()).decode()
            looked.set()
            assert await node.exit_code() == AUTH_REFUSED
            assert "TESTSECRET" not in node.output
    for path in data_dir.rglob("*"):
        if path.is_file():
            assert b"TESTSECRET" not in path.read_bytes(), path


@pytest.mark.case("F-01")
async def test_dead_proxies_do_not_stop_join_or_status_on_loopback(data_dir):
    dead = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"), "http://127.0.0.1:9")
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir, env=dead | {"NO_PROXY": ""}):
        await coordinator.link()
        assert (await (await coordinator.slot()).ask(CHAT)).end["ok"]
        code, out, _ = await brain_node("status", "--data-dir", str(data_dir), env=dead)
        assert code == OK
        assert "online" in out


async def test_drain_survives_a_restart_until_resume(data_dir):
    folder = ("--data-dir", str(data_dir))
    async with RawCoordinator() as coordinator:
        async with NodeProcess(coordinator.url, data_dir) as node:
            link = await coordinator.link()
            assert (await brain_node("drain", *folder))[0] == OK
            await link.draining()
            node.signal()
            assert await node.exit_code() == OK
        async with NodeProcess(coordinator.url, data_dir) as node:
            link = await coordinator.link()
            assert (await link.next("heartbeat"))["draining"]
            assert (await node.status())["draining_for"] == ["operator"]
            assert (await brain_node("resume", *folder))[0] == OK
            while (await link.next("heartbeat"))["draining"]:
                pass
            code, out, _ = await brain_node("stop", *folder)
            assert (code, out.strip()) == (OK, "stopping")
            assert await node.exit_code() == OK


async def test_a_full_disk_keeps_nobody_from_draining_and_floods_no_journal(data_dir):
    (data_dir / "logs").mkdir(parents=True)
    (data_dir / "logs" / "agent.log").symlink_to("/dev/full")
    (data_dir / "state.json").mkdir()
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir) as node:
        link = await coordinator.link()
        code, out, err = await brain_node("drain", "--data-dir", str(data_dir))
        assert (code, "draining" in out, "a restart forgets it" in err) == (OK, True, True)
        await link.draining()
        assert (await node.status())["draining"]
        node.signal()
        assert await node.exit_code() == OK
    assert node.output.count("cannot be written: [Errno 28] No space left on device") == 1
    assert "Traceback" not in node.output


async def test_why_shows_what_the_coordinator_said(data_dir):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir):
        link = await coordinator.link()
        await link.say("notice", code="skipped", message="ask above budget", data={"skipped": {"ask above budget": 4}})
        await link.say("ping", n=1)
        await link.next("pong")
        code, out, _ = await brain_node("why", "--data-dir", str(data_dir))
        assert code == OK
        assert "ask above budget: skipped 4 times" in out
        answer = orjson.loads((await brain_node("why", "--json", "--data-dir", str(data_dir)))[1])
        assert answer["skipped"] == {"ask above budget": 4}


async def test_a_second_agent_with_the_same_folder_is_refused(data_dir):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir) as node:
        await coordinator.link()
        code, _, err = await brain_node("join", coordinator.url, "--engine", "mock", "--data-dir", str(data_dir))
        assert code == TEMPORARY
        assert f"process {node.process.pid}" in err


async def test_a_killed_agent_leaves_nothing_that_stops_the_next(data_dir):
    async with RawCoordinator() as coordinator:
        async with NodeProcess(coordinator.url, data_dir) as node:
            first = await coordinator.link()
            node.signal(signal.SIGKILL)
            await node.exit_code()
            code, _, err = await brain_node("status", "--data-dir", str(data_dir))
            assert code == UNAVAILABLE
            assert "no agent runs" in err
        async with NodeProcess(coordinator.url, data_dir) as node:
            second = await coordinator.link()
            assert first.hello["node_id"] == second.hello["node_id"]
            assert (await node.status())["running"]


async def test_the_files_that_a_shell_allows_do_not_bound_the_jobs_of_a_node(data_dir):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with FakeEngine() as engine, RawCoordinator() as coordinator:
        options = ("--engine-url", engine.url, "--serve", "qwen/qwen2.5-7b-instruct=served-name", "--slots", "80")
        node = NodeProcess(coordinator.url, data_dir, *options, engine="attach")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            await node.__aenter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            link = await coordinator.link()
            await link.offered()
            await link.say("open_slots", n=80)
            for _ in range(80):
                await coordinator.slot()
        finally:
            await node.__aexit__()


@pytest.mark.parametrize(
    ("args", "env", "code", "words"),
    [
        (["ftp://x", "--engine", "mock"], {}, USAGE, "bad_url"),
        (["https://u:TESTSECRET@x", "--engine", "mock"], {}, USAGE, "--token-file"),
        (["--engine", "mock"], {}, CONFIG, "no coordinator"),
        (["http://127.0.0.1:9", "--engine", "sglang"], {}, USAGE, "vllm, attach, mock"),
        (["http://127.0.0.1:9", "--engine", "mock", "--slots", "0"], {}, USAGE, "--slots"),
        (["http://127.0.0.1:9", "--engine", "mock", "--model", "qwen/qwen3-8b"], {}, CONFIG, "brain/mock only"),
        (["http://127.0.0.1:9", "--engine", "attach"], {}, CONFIG, "--engine-url"),
        (["http://127.0.0.1:9", "--engine", "attach", "--engine-url", "x", "--serve", "a=b"], {}, CONFIG, "a"),
        (["https://x", "--engine", "mock", "--ca-file", "/no/such.pem"], {}, CONFIG, "/no/such.pem"),
        (["http://x", "--engine", "mock", "--ca-file", "ca.pem"], {}, CONFIG, "write https://"),
        (["http://x", "--engine-url", "http://127.0.0.1:8000"], {}, USAGE, "add --engine attach"),
        (["http://127.0.0.1:9", "--engine", "mock", "--catalog", "/no/such.toml"], {}, CONFIG, "/no/such.toml"),
        (["http://127.0.0.1:9"], {"BRAIN_NODE_SLOTS": "x"}, CONFIG, "BRAIN_NODE_SLOTS"),
    ],
)
async def test_what_is_wrong_is_said_in_plain_lines_with_a_code(data_dir, args, env, code, words):
    got, out, err = await brain_node("join", *args, "--data-dir", str(data_dir), env=env)
    assert got == code, err
    assert words in err
    assert "Traceback" not in err
    assert "TESTSECRET" not in err
    assert out == ""


async def test_a_damaged_key_is_an_error_and_stays(data_dir):
    data_dir.mkdir(mode=0o700)
    (data_dir / "node.key").write_text("rubbish")
    code, _, err = await brain_node("join", "http://127.0.0.1:9", "--engine", "mock", "--data-dir", str(data_dir))
    assert code == CONFIG
    assert "damaged" in err
    assert (data_dir / "node.key").read_text() == "rubbish"
