"""How long work around engines is shown: one line a step, never a silent minute, nothing but ASCII off a terminal."""

import re
import sys
import time
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.status import Status
from typing_extensions import override

_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]")

PLAIN_TICK_S: Final = 15.0
"""Off a terminal, a running step says so this often."""


class Progress(Protocol):
    """Hears of each step of long work. Calls come in order: `step`, any number of `tick`, `done`."""

    def step(self, number: int, total: int, text: str) -> None:
        """A step begins."""

    def tick(self, elapsed_s: float, detail: str) -> None:
        """The step still runs; `detail` is the newest thing it said, or empty."""

    def done(self, elapsed_s: float, note: str) -> None:
        """The step is over; `note` says what came of it, or is empty."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""


class PlainProgress(Progress):
    """Plain lines, for pipes, journals and CI."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._title = ""
        self._told_at_s = 0.0

    @override
    def step(self, number: int, total: int, text: str) -> None:
        self._title, self._told_at_s = f"[{number}/{total}] {text}", 0.0
        self._line(f"{self._title} ...")

    @override
    def tick(self, elapsed_s: float, detail: str) -> None:
        if elapsed_s - self._told_at_s >= PLAIN_TICK_S:
            self._told_at_s = elapsed_s
            self._line(f"{self._title} ... {elapsed_s:.0f} s{': ' + _shorten(detail, 60) if detail else ''}")

    @override
    def done(self, elapsed_s: float, note: str) -> None:
        self._line(f"{self._title}: {note or 'done'} ({elapsed_s:.1f} s)")

    @override
    def note(self, text: str) -> None:
        self._line(text)

    def _line(self, text: str) -> None:
        # A stream in an old code page must not turn a file name into a crash.
        encoding = self._stream.encoding or "ascii"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


class TerminalProgress(Progress):
    """A spinner with the elapsed time on a terminal, and a line for each step that is over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._title = ""

    @override
    def step(self, number: int, total: int, text: str) -> None:
        self._title = f"[{number}/{total}] {text}"
        self._status = self._console.status(_escape(self._title))
        self._status.start()

    @override
    def tick(self, elapsed_s: float, detail: str) -> None:
        if self._status is not None:
            room = max(0, self._console.width - len(self._title) - 16)
            self._status.update(_escape(f"{self._title}  {elapsed_s:.0f} s  {_shorten(detail, room)}"))

    @override
    def done(self, elapsed_s: float, note: str) -> None:
        self._stop()
        self._console.print(_escape(f"{self._title}: {note or 'done'} ({elapsed_s:.1f} s)"), highlight=False)

    @override
    def note(self, text: str) -> None:
        self._console.print(_escape(text), highlight=False)

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def progress_for(stream: TextIO | None = None) -> PlainProgress | TerminalProgress:
    """The fitting progress display for a stream (standard error by default)."""
    chosen = sys.stderr if stream is None else stream
    console = Console(file=chosen)
    return TerminalProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(chosen)


class Stopwatch:
    """Seconds since it was made, on the monotonic clock."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began


def _shorten(text: str, room: int) -> str:
    clean = " ".join(_CONTROL.sub(" ", text).split())
    return clean if len(clean) <= room else clean[: max(0, room - 3)] + "..."


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
