"""Runs one program of an install: its output kept in a log, its newest line shown, its whole group ended on Ctrl-C."""

import os
import re
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Final

_LOOK_EVERY_S: Final = 0.5
_END_GRACE_S: Final = 5.0
_SECRET_NAMES: Final = re.compile(r"^(BRAIN_|HF_TOKEN$|HUGGING_FACE_HUB_TOKEN$|OPENAI_|ANTHROPIC_|VLLM_API_KEY$)")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended."""

    code: int
    tail: tuple[str, ...]
    """The last lines it wrote, both streams together."""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0


def install_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment for an installer: index and proxy settings stay, the node's secrets go."""
    kept = {name: value for name, value in os.environ.items() if not _SECRET_NAMES.match(name)}
    # A caller's own virtual environment must not leak into the one being made.
    for name in ("VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH", "UV_PYTHON"):
        kept.pop(name, None)
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONUNBUFFERED": "1"} | dict(extra)


def run_program(
    argv: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    tick: Callable[[float, str], None],
    keep_fds: Sequence[int] = (),
) -> Finished:
    """Run `argv` to its end and return how it ended.

    Args:
        argv: the program and its words.
        env: its whole environment.
        log: gets everything it writes, appended.
        tick: told the seconds passed and the newest line about twice a second.
        keep_fds: descriptors that stay open in it, such as a lock that must outlive this process if this one is killed.
    """
    began = time.monotonic()
    tail: deque[str] = deque(maxlen=30)
    with log.open("ab") as sink:
        sink.write(f"$ {' '.join(argv)}\n".encode())
        # Its own session: a Ctrl-C reaches us alone, and we end the whole group ourselves.
        child = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(keep_fds),
        )
        try:
            assert child.stdout is not None
            _pump(child.stdout, sink, tail, lambda: tick(time.monotonic() - began, tail[-1] if tail else ""))
            return Finished(child.wait(), tuple(tail))
        except BaseException:
            _end_group(child)
            raise
        finally:
            if child.stdout is not None:
                child.stdout.close()


def _pump(source: IO[bytes], sink: BinaryIO, tail: deque[str], look: Callable[[], None]) -> None:
    descriptor = source.fileno()
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if selector.select(timeout=_LOOK_EVERY_S):
                data = os.read(descriptor, 65536)
                if not data:
                    break
                sink.write(data)
                sink.flush()
                *lines, pending = re.split(rb"[\r\n]+", pending + data)
                tail.extend(text for line in lines if (text := line.decode(errors="replace").strip()))
            look()
    if pending.strip():
        tail.append(pending.decode(errors="replace").strip())


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(_END_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    child.poll()
