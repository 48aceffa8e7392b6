"""Start a real program of ours, wait for a line it prints, and never leave it behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

START_S = 60.0


class Program:
    """A child process whose output is kept; its whole process group ends with the test."""

    def __init__(self, argv: Sequence[str], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, text: str, timeout_s: float = START_S, *, start: int = 0) -> str:
        """The first line at or after index `start` that holds `text`."""

        def found() -> str | None:
            return next((line for line in self.lines[start:] if text in line), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or not self._reader.is_alive(), timeout_s)
        line = found()
        assert line is not None, f"no {text!r} in the output of {self._process.args}:\n{self.output}"
        return line

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 30.0) -> int:
        """The exit code; a negative number for the signal that ended it."""
        code = self._process.wait(timeout_s)
        self._close()
        return code

    def _close(self) -> None:
        self._reader.join(5.0)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM and wait."""
        if self.running:
            self.send(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """End the whole group at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10.0)
        self._close()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def python_program(module: str, *arguments: str, **options: object) -> Program:
    """`python -m module arguments…` as a program."""
    return Program([sys.executable, "-m", module, *arguments], **options)
