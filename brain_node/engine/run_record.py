"""What is written down of each running engine, so that a later agent recognises what an earlier one left behind."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from brain_node.contract.secret_file import write_private


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One engine process group, as it was started."""

    model_id: str
    pid: int
    """Of the root; also its group and its session."""
    start_ticks: int
    boot_id: str
    scratch: str
    """Its own temporary folder, also its working folder: every child inherits it, and no stranger works there."""
    port: int
    argv: tuple[str, ...]
    agent_pid: int
    shared_memory: tuple[str, ...] = ()
    """Names in /dev/shm that it was seen to use."""


def record_path(run_dir: Path, slug: str) -> Path:
    """Where the record of the engine `slug` lies."""
    return run_dir / "engines" / f"{slug}.json"


def write_record(path: Path, record: RunRecord) -> None:
    """Write a record, whole or not at all."""
    write_private(path, json.dumps(asdict(record)))


def read_records(run_dir: Path) -> Iterator[tuple[Path, RunRecord | None]]:
    """Every record there is; `None` for one that cannot be read."""
    for path in sorted((run_dir / "engines").glob("*.json")):
        record = None
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            raw = json.loads(path.read_text(encoding="utf-8"))
            record = RunRecord(
                model_id=str(raw["model_id"]),
                pid=int(raw["pid"]),
                start_ticks=int(raw["start_ticks"]),
                boot_id=str(raw["boot_id"]),
                scratch=str(raw["scratch"]),
                port=int(raw["port"]),
                argv=tuple(str(word) for word in raw["argv"]),
                agent_pid=int(raw["agent_pid"]),
                shared_memory=tuple(str(name) for name in raw["shared_memory"]),
            )
        yield path, record
