"""What an engine says: kept in a file of its own that is rotated, and the last lines in memory.

Secrets are taken out, and what a terminal would obey: an engine may repeat a client's words.
"""

import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from brain_node.contract.messages import printable

KEEP_LINES: Final = 200
LONGEST_LINE_BYTES: Final = 8192
_SECRETS: Final = re.compile(
    r"(hf_[A-Za-z0-9]{8,}|(?<=Bearer )[^\s'\",]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=api_key=)[^\s'\",]+|(?<=token=)[^\s'\",&]+)"
)
_HIDDEN: Final = "[hidden]"


class EngineLog:
    """The log of one engine.

    Args:
        path: the file; `path.1` is the one before it, and so on.
        max_bytes: a file is put aside when it would grow above this.
        keep: how many older files stay.
        on_line: told every line, for progress shown while an engine starts.
    """

    def __init__(
        self,
        path: Path,
        max_bytes: int = 10_000_000,
        keep: int = 3,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._on_line = on_line
        self._secrets: list[str] = []
        self._pending = b""
        self._tail: deque[str] = deque(maxlen=KEEP_LINES)
        self._descriptor: int | None = None
        self._size = 0
        self.failed: str | None = None
        """Why nothing is written to the disk any more (a full disk must not stop an engine), or `None`."""

    @property
    def path(self) -> Path:
        """The newest file."""
        return self._path

    @property
    def last_line(self) -> str:
        """The newest line, or an empty text."""
        return self._tail[-1] if self._tail else ""

    def tail(self) -> tuple[str, ...]:
        """The last lines of this run, oldest first."""
        return tuple(self._tail)

    def begin_run(self, title: str, secrets: tuple[str, ...]) -> None:
        """A new process begins to write: the lines in memory are about it alone."""
        self.flush()
        self._secrets = [secret for secret in secrets if len(secret) >= 6]
        self._write(f"=== {title}\n")
        self._tail.clear()

    def feed(self, data: bytes) -> None:
        """Take what the engine wrote, in any pieces."""
        *lines, self._pending = re.split(rb"\r\n|\n|\r", self._pending + data)
        if len(self._pending) > LONGEST_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        for line in lines:
            self._take(line)

    def flush(self) -> None:
        """Take what stands after the last line end: the engine will not end that line."""
        if self._pending:
            self._take(self._pending)
            self._pending = b""

    def close(self) -> None:
        """Close the file; feeding it again opens it again."""
        self.flush()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, raw: bytes) -> None:
        text = printable(raw[:LONGEST_LINE_BYTES].decode(errors="replace")).rstrip()
        if not text:
            return
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = _SECRETS.sub(_HIDDEN, text)
        self._tail.append(text)
        self._write(text + "\n")
        if self._on_line is not None:
            self._on_line(text)

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        try:
            if self._descriptor is not None and self._size + len(data) > self._max_bytes:
                os.close(self._descriptor)
                self._descriptor = None
                self._rotate()
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            os.write(self._descriptor, data)
            self._size += len(data)
            self.failed = None
        except OSError as error:
            self.failed = error.strerror or str(error)

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        for number in range(self._keep, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            if newer.exists():
                newer.replace(older)


def log_path(data_dir: Path, slug: str) -> Path:
    """Where the log of the engine `slug` lies."""
    return data_dir / "logs" / f"{slug}.log"
