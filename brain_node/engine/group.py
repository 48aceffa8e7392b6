"""The process group of one engine: who is in it, ending all of it, and what it leaves behind.

A pid is a number that the kernel hands out again, so nobody is signalled for its number alone. A process belongs to the
engine when it is the recorded root (same pid, same start time) or when it is in the recorded session and works in the
engine's own scratch folder.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from brain_node.engine import proc_table
from brain_node.engine.proc_table import ProcessFacts
from brain_node.engine.run_record import RunRecord

SCRATCH_PREFIX: Final = "brain-engine-"
_SHM: Final = Path("/dev/shm")  # noqa: S108
_LOOK_EVERY_S: Final = 0.05
_TRACKER: Final = "multiprocessing.resource_tracker"
_TRACKER_LIMIT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What could not be removed after an engine's end; empty when all is clean."""

    processes: tuple[int, ...] = ()
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processes or self.files)


def members(record: RunRecord) -> list[ProcessFacts]:
    """The processes of the recorded engine that still run."""
    if record.boot_id != proc_table.boot_id():
        return []
    return [facts for facts in proc_table.all_processes() if facts.alive and _belongs(facts, record)]


def shared_memory(group: Iterable[ProcessFacts]) -> set[str]:
    """Names in /dev/shm that the processes of a group use."""
    return {name for facts in group for name in proc_table.shared_memory_names(facts.pid)}


def listens_on(record: RunRecord, port: int) -> bool | None:
    """Whether a process of the engine listens on `port`; `None` when nobody does or it cannot be told."""
    listening = proc_table.listening_inodes(port)
    if not listening:
        return None
    return any(listening & proc_table.socket_inodes(facts.pid) for facts in members(record))


def kill_all(record: RunRecord, limit_s: float = 10.0) -> tuple[int, ...]:
    """Kill every process of the engine and wait until they are gone (blocking); gives the pids that would not go.

    Python's resource trackers are left for last: when all others have gone they remove the named semaphores and shared
    memory that nobody else knows of, and then end by themselves.
    """
    began = time.monotonic()
    while True:
        left = members(record)
        waited_s = time.monotonic() - began
        if not left or waited_s > limit_s:
            return tuple(facts.pid for facts in left)
        trackers = [facts for facts in left if _TRACKER in proc_table.command_line(facts.pid)]
        spared = trackers if len(trackers) < len(left) or waited_s < _TRACKER_LIMIT_S else []
        for facts in left:
            if facts not in spared:
                _signal_exactly(facts, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)


def clean_up(record: RunRecord) -> tuple[str, ...]:
    """Remove the scratch folder and the shared memory of an engine that is gone; gives what could not be removed."""
    left: list[str] = []
    scratch = Path(record.scratch)
    if scratch.name.startswith(SCRATCH_PREFIX) and scratch.exists():
        shutil.rmtree(scratch, ignore_errors=True)
        if scratch.exists():
            left.append(str(scratch))
    wanted = {name for name in record.shared_memory if "/" not in name and (_SHM / name).exists()}
    # A name may be in use by somebody else by now: only what nobody has mapped is removed.
    in_use = shared_memory(proc_table.all_processes()) if wanted else set()
    for name in sorted(wanted - in_use):
        with contextlib.suppress(FileNotFoundError):
            try:
                (_SHM / name).unlink()
            except PermissionError:
                left.append(str(_SHM / name))
    return tuple(left)


def _belongs(facts: ProcessFacts, record: RunRecord) -> bool:
    if facts.pid == record.pid:
        return facts.start_ticks == record.start_ticks
    if facts.session != record.pid or facts.start_ticks < record.start_ticks:
        return False
    return proc_table.working_folder(facts.pid) == record.scratch


def _signal_exactly(facts: ProcessFacts, number: signal.Signals) -> None:
    """Signal the very process that was looked at, even if its number changes hands this instant."""
    try:
        descriptor = os.pidfd_open(facts.pid)
    except (ProcessLookupError, PermissionError):
        return
    try:
        now = proc_table.facts_of(facts.pid)
        if now is not None and now.start_ticks == facts.start_ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
