"""What commands write when they are not on a terminal, or on a poor one."""

import asyncio
import os
import pty
import sys

import orjson
import pytest

from brain_node.exit_codes import OK, UNAVAILABLE
from tests.support.eventually import eventually
from tests.support.node_process import CLEAN, NodeProcess, brain_node
from tests.support.raw_coordinator import RawCoordinator

pytestmark = pytest.mark.case("F-02")
ESC = "\x1b"


@pytest.fixture
async def agent(data_dir):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir) as node:
        link = await coordinator.link()
        await link.say("notice", code="skipped", message="✓ näïve 漢字", data={"skipped": {"✗ reason": 2}})
        await link.say("ping", n=1)
        await link.next("pong")
        yield node


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C"}])
async def test_no_encoding_turns_a_good_answer_into_a_failure(agent, env):
    for words in (["status"], ["why"], ["join", "--help"]):
        code, out, err = await brain_node(*words, *_folder(words, agent), env=env)
        assert code == OK, err
        assert "Traceback" not in err
        assert ESC not in out + err


def _folder(words, agent):
    return [] if "--help" in words else ["--data-dir", str(agent.data_dir)]


async def test_the_exit_code_tells_the_real_state(agent, tmp_path):
    env = {"PYTHONIOENCODING": "cp1252"}
    assert (await brain_node("status", "--data-dir", str(agent.data_dir), env=env))[0] == OK
    assert (await brain_node("status", "--data-dir", str(tmp_path), env=env))[0] == UNAVAILABLE


async def test_json_stands_alone_on_standard_output(agent, tmp_path):
    for words in (["status"], ["why"], ["gpus"], ["models"], ["doctor", "--engine", "mock"]):
        _, out, _ = await brain_node(*words, "--json", "--data-dir", str(agent.data_dir))
        assert isinstance(orjson.loads(out), dict)
    _, out, err = await brain_node("status", "--json", "--data-dir", str(tmp_path))
    assert orjson.loads(out)["running"] is False
    assert "no agent runs" in err


async def test_join_writes_plain_lines_to_a_file(agent):
    assert ESC not in agent.output
    assert " linked coordinator=" in agent.output


async def test_json_log_lines_are_each_one_object(data_dir):
    async with RawCoordinator() as coordinator, NodeProcess(coordinator.url, data_dir, "--json") as node:
        await coordinator.link()
        node.signal()
        assert await node.exit_code() == OK
    events = [orjson.loads(line)["event"] for line in node.output.splitlines()]
    assert events[0] == "starting"
    assert events[-1] == "stopped"


async def on_a_terminal(*words: str, env: dict[str, str], until) -> str:
    """Run a command on a pseudo-terminal of 100 columns until a word has been written, then end it."""
    main, side = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "brain_node",
        *words,
        env=CLEAN | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"} | env,
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other side is closed
                return
            if not piece:
                return
            seen.extend(piece)

    reading = asyncio.create_task(asyncio.to_thread(read))
    async with asyncio.timeout(30):
        await until(lambda: seen.decode(errors="replace"))
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await reading
    os.close(main)
    return seen.decode(errors="replace")


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
async def test_a_terminal_that_wants_no_colours_gets_no_escape(data_dir, env):
    async with RawCoordinator() as coordinator:

        async def linked(_):
            await coordinator.link()

        words = ("join", coordinator.url, "--engine", "mock", "--data-dir", str(data_dir))
        assert ESC not in await on_a_terminal(*words, env=env, until=linked)

    async def anything(seen):
        await eventually(lambda: "Commands" in seen())

    assert ESC not in await on_a_terminal("--help", env=env, until=anything)


async def test_a_terminal_gets_the_live_panel(data_dir):
    async with RawCoordinator() as coordinator:

        async def shown(seen):
            link = await coordinator.link()
            await link.say("notice", code="skipped", message="ask [bold]above[/bold] budget")
            await eventually(lambda: "above" in seen())

        words = ("join", coordinator.url, "--engine", "mock", "--data-dir", str(data_dir))
        text = await on_a_terminal(*words, env={}, until=shown)
    assert ESC in text
    assert "brain/mock" in text
    assert "[bold]above[/bold]" in text  # what a coordinator says is text, never markup


async def test_what_ended_the_agent_is_said_below_the_panel(data_dir):
    async with RawCoordinator() as coordinator:
        coordinator.on_hello = lambda link: link.say("refused", code="bad_token", message="unknown", retry=False)

        async def ended(seen):
            await eventually(lambda: "error [bad_token]" in seen())

        words = ("join", coordinator.url, "--engine", "mock", "--data-dir", str(data_dir))
        await on_a_terminal(*words, env={}, until=ended)


async def test_a_mistyped_variable_is_told_beside_the_answer(tmp_path):
    typo = {"BRAIN_NODE_DATADIR": "/elsewhere"}
    line = "environment BRAIN_NODE_DATADIR sets nothing. Did you mean BRAIN_NODE_DATA_DIR?"
    _, out, err = await brain_node("status", "--json", "--data-dir", str(tmp_path), env=typo)
    assert orjson.loads(out)["running"] is False
    assert f"warning: {line}\n" in err
    _, out, err = await brain_node("doctor", "--engine", "mock", "--data-dir", str(tmp_path), env=typo)
    assert out.startswith(f"warn  settings     {line}\n")
    assert err == ""


async def test_join_tells_a_mistyped_variable_in_its_log(data_dir):
    async with (
        RawCoordinator() as coordinator,
        NodeProcess(coordinator.url, data_dir, env={"BRAIN_NODE_SLOT": "3"}) as node,
    ):
        await coordinator.link()
        assert "BRAIN_NODE_SLOT sets nothing. Did you mean BRAIN_NODE_SLOTS?" in node.output


async def test_a_terminal_is_told_a_mistyped_variable_also_when_that_ends_the_agent(data_dir):
    async def over(seen):
        await eventually(lambda: "next:" in seen())

    typo = {"BRAIN_NODE_ULR": "https://c.example"}
    text = await on_a_terminal("join", "--engine", "mock", "--data-dir", str(data_dir), env=typo, until=over)
    assert "sets nothing. Did you mean BRAIN_NODE_URL?" in text
