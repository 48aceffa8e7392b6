"""Processes, their records, and what a killed agent leaves behind: real processes, real signals."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from brain_node.engine import proc_table
from brain_node.engine.group import clean_up, kill_all, members
from brain_node.engine.orphans import end_orphans, find_orphans
from brain_node.engine.run_record import RunRecord, read_records, record_path, write_record
from tests.support.fake_vllm import FakeVllm, program

# An agent that launches one engine, says its pids and is then killed by the test.
AGENT = """
import asyncio, os, sys
from pathlib import Path
from brain_node.engine.environments import Flavour
from brain_node.engine.group import members
from brain_node.engine.spec import EngineSpec
from brain_node.engine.states import State
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.surroundings import Surroundings

async def main():
    spec = EngineSpec("test/model", Path("/srv"), tuple(sys.argv[2:]), Flavour.CPU)
    engine = EngineSupervisor(spec, Surroundings(Path(sys.argv[1])))
    await engine.start()
    await engine.wait_for_state(State.READY)
    print("PIDS", *(facts.pid for facts in members(engine.record)), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def wait_until(true, limit_s: float = 20.0) -> None:
    give_up = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    facts = proc_table.facts_of(pid)
    return facts is not None and facts.alive


@pytest.fixture
def spawn():
    """Starts processes that are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, *words: str, **options) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *words], **options)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


def kill_agent(spawn, tmp_path, *starts: FakeVllm) -> list[int]:
    """Run an agent with one engine and kill it as the kernel would; gives the engine's pids."""
    words = program(tmp_path, *starts)
    agent = spawn(AGENT, str(tmp_path / "data"), *words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    for line in agent.stdout:
        if line.startswith(b"PIDS"):
            pids = [int(word) for word in line.split()[1:]]
            break
    agent.kill()
    agent.wait()
    return pids


def test_an_engine_is_told_to_go_when_its_agent_is_killed(spawn, tmp_path):
    pids = kill_agent(spawn, tmp_path, FakeVllm())
    wait_until(lambda: not any(map(alive, pids)))
    ((_, record),) = read_records(tmp_path / "data" / "run")
    assert Path(record.scratch).exists()
    assert end_orphans(tmp_path / "data" / "run") == ()
    assert not Path(record.scratch).exists()


def test_the_next_start_ends_what_a_killed_agent_left(spawn, tmp_path):
    pids = kill_agent(spawn, tmp_path, FakeVllm(child=True, ignore_term=True))
    run_dir = tmp_path / "data" / "run"
    assert all(map(alive, pids))
    (found,) = find_orphans(run_dir)
    assert set(found.pids) == set(pids)
    assert all(map(alive, pids)), "a look changes nothing"
    (orphan,) = end_orphans(run_dir)
    assert set(orphan.pids) == set(pids)
    assert not orphan.leftovers
    assert not any(map(alive, pids))
    assert not Path(orphan.record.scratch).exists()
    assert list(read_records(run_dir)) == []
    assert end_orphans(run_dir) == ()


def test_children_that_outlived_their_root_are_found_too(spawn, tmp_path):
    pids = kill_agent(spawn, tmp_path, FakeVllm(child=True))
    run_dir = tmp_path / "data" / "run"
    wait_until(lambda: sum(map(alive, pids)) == 1)  # the root obeyed, its child lives on
    (orphan,) = end_orphans(run_dir)
    assert len(orphan.pids) == 1
    assert not any(map(alive, pids))


def record_of(child: subprocess.Popen[bytes], scratch: Path, **changes) -> RunRecord:
    facts = proc_table.facts_of(child.pid)
    record = RunRecord("m", child.pid, facts.start_ticks, proc_table.boot_id(), str(scratch), 1, (), os.getpid())
    return replace(record, **changes)


SLEEP = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    "changes",
    [
        {"start_ticks": 1},
        {"boot_id": "another boot"},
    ],
)
def test_a_stranger_with_a_recorded_number_is_never_touched(spawn, tmp_path, changes):
    stranger = spawn(SLEEP, start_new_session=True)
    record = record_of(stranger, tmp_path / "brain-engine-x", **changes)
    write_record(record_path(tmp_path, "m"), record)
    end_orphans(tmp_path)
    assert stranger.poll() is None
    assert list(read_records(tmp_path)) == []


def test_a_stranger_in_a_session_of_a_recorded_number_is_never_touched(spawn, tmp_path):
    """The root is gone, its number went to somebody else's shell, and that one has children."""
    leader = spawn(
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).wait()",
        start_new_session=True,
    )
    record = record_of(leader, tmp_path / "brain-engine-x")
    wait_until(lambda: sum(facts.session == leader.pid for facts in proc_table.all_processes()) == 2)
    record = replace(record, start_ticks=record.start_ticks - 1)
    assert members(record) == []
    assert kill_all(record) == ()
    assert leader.poll() is None
    for facts in proc_table.all_processes():
        if facts.session == leader.pid:
            os.kill(facts.pid, signal.SIGKILL)


def test_a_child_that_changed_its_group_is_still_a_member(spawn, tmp_path):
    scratch = tmp_path / "brain-engine-x"
    scratch.mkdir()
    root = spawn(
        "import os, time\nif os.fork() == 0: os.setpgid(0, 0)\ntime.sleep(600)", start_new_session=True, cwd=scratch
    )
    record = record_of(root, scratch)
    wait_until(lambda: len(members(record)) == 2)
    assert kill_all(record) == ()
    wait_until(lambda: members(record) == [])


def test_a_stopped_process_is_ended_too(spawn, tmp_path):
    root = spawn(SLEEP, start_new_session=True, cwd=tmp_path)
    record = record_of(root, tmp_path)
    os.kill(root.pid, signal.SIGSTOP)
    assert kill_all(record) == ()


def test_only_folders_of_our_own_making_are_removed(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    record = RunRecord("m", 1, 1, "boot", str(precious), 1, (), 1, ("../etc/passwd", "no-such-name"))
    assert clean_up(record) == ()
    assert precious.is_dir()


def test_shared_memory_that_somebody_has_mapped_stays(spawn, tmp_path):
    name = f"brain-test-{os.getpid()}"
    path = Path("/dev/shm") / name
    path.write_bytes(b"x" * 4096)
    record = RunRecord("m", 1, 1, "boot", str(tmp_path / "gone"), 1, (), 1, (name,))
    try:
        user = spawn(
            "import mmap, sys, time\n"
            "f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print('ok', flush=True); time.sleep(600)",
            str(path),
            stdout=subprocess.PIPE,
        )
        assert user.stdout.readline() == b"ok\n"
        assert clean_up(record) == ()
        assert path.exists()
        user.kill()
        user.wait()
        clean_up(record)
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "\x00"])
def test_a_record_that_cannot_be_read_is_put_away(tmp_path, text):
    path = record_path(tmp_path, "broken")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert end_orphans(tmp_path) == ()
    assert not path.exists()


def test_a_process_that_left_has_no_facts():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert proc_table.facts_of(child.pid) is None
    assert proc_table.working_folder(child.pid) is None
    assert proc_table.shared_memory_names(child.pid) == set()
    assert proc_table.socket_inodes(child.pid) == set()
    assert proc_table.command_line(child.pid) == ""
