"""`brain-coord top`: plain lines off a terminal, a live screen on one."""

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coordinator import CoordinatorProcess, brain_coord
from tests.support.raw_node import RawNode


@pytest.mark.slow
async def test_off_a_terminal_it_prints_what_it_sees_and_leaves(tmp_path: Path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as coordinator:
        async with RawNode(coordinator.url, offer={"region": "eu"}) as node:
            await asyncio.to_thread(coordinator.wait_for_node, node.node_id, state="ONLINE")
            command = ("top", "--data-dir", str(coordinator.data_dir))
            done = await asyncio.to_thread(brain_coord, *command)
            seen = await asyncio.to_thread(coordinator.command, "top")
            screen = await asyncio.to_thread(on_a_terminal, command)
    assert done.returncode == 0
    assert done.stdout.startswith("1 of 1 nodes connected (1 ")
    assert f"\n{node.node_id}\t" in done.stdout
    assert "\x1b" not in done.stdout
    assert seen["summary"]["connected"] == 1
    assert seen["nodes"][0]["region"] == "eu"
    assert {row["resource_class"]: row["configured"] for row in seen["classes"]} == {
        "BROWSER_NETWORK": True,
        "NATIVE_NETWORK": True,
        "CLOUD_GPU": False,
        "EXTERNAL_MODEL": False,
    }
    assert node.node_id in screen
    assert "\x1b[?1049h" in screen  # a screen of its own …
    assert "\x1b[?1049l" in screen  # … that is left as it was found


def on_a_terminal(command: tuple[str, ...]) -> str:
    """What the command draws on a terminal until Ctrl-C."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "brain_coord", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"},
        start_new_session=True,
    )
    os.close(theirs)
    drawn, interrupted = b"", False
    try:
        while select.select([ours], [], [], 30)[0]:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            drawn += data
            if drawn.count(b"receipts") >= 2 and not interrupted:
                interrupted = True
                program.send_signal(signal.SIGINT)
        assert program.wait(15) == 0
    finally:
        program.kill()
        program.wait(5)
        os.close(ours)
    return drawn.decode(errors="replace")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_a_coordinator_it_says_what_to_do(tmp_path: Path, options: tuple[str, ...]):
    done = brain_coord("top", "--data-dir", str(tmp_path), *options)
    assert done.returncode == 75
    assert done.stderr.startswith("error [not_running]")
    assert "next: Start one" in done.stderr
