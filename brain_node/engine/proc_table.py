"""Reads the process table of Linux: who is in a group, since when, what it holds. Never raises for a process that left."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_SHM: Final = "/dev/shm/"  # noqa: S108


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process, as its `stat` tells."""

    pid: int
    state: str
    """One letter: `Z` has ended and only waits to be collected, `T` is stopped."""
    group: int
    session: int
    start_ticks: int
    """Clock ticks from boot to its start: with the pid this names a process for good, within one boot."""

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return self.state not in "ZX"


def boot_id() -> str:
    """What tells one boot of this machine from the next."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def facts_of(pid: int) -> ProcessFacts | None:
    """The facts of one process, or `None` when there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may itself hold brackets and blanks.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessFacts(
        pid=pid,
        state=fields[0],
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def all_processes() -> Iterator[ProcessFacts]:
    """Every process that can be seen."""
    for entry in os.scandir(_PROC):
        if entry.name.isdigit() and (facts := facts_of(int(entry.name))):
            yield facts


def working_folder(pid: int) -> str | None:
    """The folder a process works in, also when that folder was deleted meanwhile."""
    try:
        return str((_PROC / str(pid) / "cwd").readlink()).removesuffix(" (deleted)")
    except OSError:
        return None


def command_line(pid: int) -> str:
    """A process's words, blanks between them; empty when it is gone or has none."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def shared_memory_names(pid: int) -> set[str]:
    """Names in /dev/shm that a process has mapped or open."""
    names: set[str] = set()
    try:
        for line in (_PROC / str(pid) / "maps").read_text(errors="replace").splitlines():
            at = line.find(_SHM)
            if at >= 0 and not line.endswith("(deleted)"):
                names.add(line[at + len(_SHM) :])
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith(_SHM) and not target.endswith("(deleted)"):
                names.add(target[len(_SHM) :])
    except OSError:
        pass
    return names


def socket_inodes(pid: int) -> set[str]:
    """Inodes of the sockets a process has open."""
    found: set[str] = set()
    try:
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found


def listening_inodes(port: int) -> set[str]:
    """Inodes of the sockets that listen on a TCP port of this machine, on any address."""
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found
