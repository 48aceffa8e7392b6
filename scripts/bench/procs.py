"""Processor time and memory of processes and their children, from /proc."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a group of processes has used: processor seconds since their start, resident bytes now."""

    cpu_s: float
    rss_bytes: int


def with_children(pids: Iterable[int]) -> list[int]:
    """These processes and everything they started that still runs."""
    found: dict[int, None] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            found |= dict.fromkeys([pid, *(child.pid for child in process.children(recursive=True))])
        except psutil.NoSuchProcess:
            continue
    return list(found)


def usage(pids: Iterable[int]) -> Usage:
    """Of all these processes together; one that is gone counts nothing."""
    cpu_s, rss_bytes = 0.0, 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            statm = Path(f"/proc/{pid}/statm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = stat.rpartition(")")[2].split()
        cpu_s += (int(fields[11]) + int(fields[12])) * TICK_S
        rss_bytes += int(statm.split()[1]) * PAGE_BYTES
    return Usage(cpu_s, rss_bytes)
