"""Finds and ends what an agent that was killed left running: at the next start, before any engine is launched."""

from dataclasses import dataclass
from pathlib import Path

from brain_node.engine import proc_table
from brain_node.engine.group import Leftovers, clean_up, kill_all, members
from brain_node.engine.run_record import RunRecord, read_records


@dataclass(frozen=True, slots=True)
class Orphan:
    """One engine that outlived its agent."""

    record: RunRecord
    pids: tuple[int, ...]
    """Its processes that still ran when it was found."""
    leftovers: Leftovers
    """What is still there after it was ended (empty in a mere look)."""


def find_orphans(run_dir: Path) -> tuple[Orphan, ...]:
    """Engines on record whose agent is gone and that still run; a look that changes nothing (blocking)."""
    found = []
    for _, record in read_records(run_dir):
        if record is not None and not _agent_lives(record) and (group := members(record)):
            found.append(Orphan(record, tuple(facts.pid for facts in group), Leftovers()))
    return tuple(found)


def end_orphans(run_dir: Path) -> tuple[Orphan, ...]:
    """End every engine on record and clean up after it (blocking; call it before launching, holding the agent's lock).

    Only processes that are proven to be the recorded engine's are touched: see `brain_node.engine.group`.
    """
    ended = []
    for path, record in read_records(run_dir):
        if record is None:
            path.unlink(missing_ok=True)
            continue
        pids = tuple(facts.pid for facts in members(record))
        stubborn = kill_all(record) if pids else ()
        files = clean_up(record)
        if not stubborn:
            path.unlink(missing_ok=True)
        if pids or files:
            ended.append(Orphan(record, pids, Leftovers(stubborn, files)))
    return tuple(ended)


def _agent_lives(record: RunRecord) -> bool:
    facts = proc_table.facts_of(record.agent_pid)
    # An agent is older than its engines: a younger process with its number is somebody else.
    return facts is not None and facts.alive and facts.start_ticks <= record.start_ticks
