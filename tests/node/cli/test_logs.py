"""`brain-node logs`."""

import asyncio
import sys

import pytest

from brain_node.exit_codes import OK, UNAVAILABLE, USAGE
from tests.support.node_process import CLEAN, brain_node


@pytest.fixture
def folder(data_dir):
    folder = data_dir / "logs"
    folder.mkdir()
    (folder / "agent.log").write_text(
        '{"model": "a/b", "event": "engine_state", "level": "info", "timestamp": "T1", "n": "\\u001b[2J"}\n'
        '{"event": "failed", "level": "error", "timestamp": "T2", "exception": "Traceback:\\n  line"}\n'
        "no json\n"
    )
    (folder / "qwen--qwen3-8b.log").write_text("".join(f"line {n}\n" for n in range(100)))
    (folder / "qwen--qwen3-14b.log").write_text("fourteen\n")
    return folder


def test_the_agents_records_are_shown_as_lines(run, folder):
    result = run("logs")
    assert result.exit_code == OK
    assert result.stdout == (
        "T1 info    engine_state model=a/b n='\\x1b[2J'\nT2 error   failed\nTraceback:\n  line\nno json\n"
    )


@pytest.mark.parametrize("name", ["qwen/qwen3-8b", "qwen--qwen3-8b", "8b"])
def test_an_engines_log_is_found_by_its_model(run, folder, name):
    assert run("logs", name, "-n", "2").stdout == "line 98\nline 99\n"


@pytest.mark.parametrize(("name", "words"), [("qwen3", "qwen/qwen3-14b, qwen/qwen3-8b"), ("llama", "qwen/qwen3-14b")])
def test_an_unclear_name_lists_what_there_is(run, folder, name, words):
    result = run("logs", name)
    assert result.exit_code == USAGE
    assert words in result.stderr


def test_without_logs_it_says_so(run):
    assert run("logs").exit_code == UNAVAILABLE


def test_all_lines_are_shown_when_more_are_asked_for_than_there_can_be(run, folder):
    assert len(run("logs", "8b", "-n", "9" * 30).stdout.splitlines()) == 100


async def test_a_log_that_cannot_be_read_is_one_plain_error(data_dir):
    (data_dir / "logs" / "agent.log").mkdir(parents=True)
    code, _, err = await brain_node("logs", "--data-dir", str(data_dir))
    assert code == UNAVAILABLE
    assert "Is a directory" in err
    assert "Traceback" not in err


async def test_the_home_of_nobody_is_one_plain_error():
    code, _, err = await brain_node("logs", "--data-dir", "~no-such-user/x")
    assert code == USAGE
    assert "Traceback" not in err


async def test_following_goes_on_over_a_rotation(folder, data_dir):
    path = folder / "qwen--qwen3-8b.log"
    words = ("logs", "-f", "-n", "1", "qwen/qwen3-8b", "--data-dir", str(data_dir))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "brain_node", *words, env=CLEAN, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"line 99\n"
        with path.open("a") as file:
            file.write("added\n")
        assert await process.stdout.readline() == b"added\n"
        path.rename(folder / "qwen--qwen3-8b.log.1")
        path.write_text("anew\n")
        assert await process.stdout.readline() == b"anew\n"
        process.terminate()
        await process.wait()
