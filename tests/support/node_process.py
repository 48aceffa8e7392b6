"""`brain-node` as a process: started as people start it, with its output kept."""

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from brain_node.local_api.client import ask

WAIT_S = 30.0
CLEAN = {
    name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY") and "BRAIN_" not in name
}


async def brain_node(*args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> tuple[int, str, str]:
    """Run one command to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "brain_node",
        *args,
        env=CLEAN | (env or {}),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


class NodeProcess:
    """`brain-node join URL …` until told otherwise; ended with the test.

    Use as `async with NodeProcess(url, data_dir, …) as node`.
    """

    def __init__(
        self,
        url: str,
        data_dir: Path,
        *args: str,
        env: dict[str, str] | None = None,
        engine: str = "mock",
        umask: int | None = None,
    ) -> None:
        self.data_dir = data_dir
        self._umask = umask
        self._args = ("join", url, "--engine", engine, "--data-dir", str(data_dir), *args)
        self._env = CLEAN | (env or {})
        self.log_path = data_dir.parent / f"{data_dir.name}.output"

    async def __aenter__(self) -> "NodeProcess":
        with self.log_path.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "brain_node",
                *self._args,
                env=self._env,
                stdout=log,
                stderr=log,
                preexec_fn=None if self._umask is None else partial(os.umask, self._umask),
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    @property
    def output(self) -> str:
        """Everything it wrote so far, on both streams."""
        return self.log_path.read_text(errors="replace")

    @property
    def command_line(self) -> str:
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        """Wait for its end."""
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()

    async def status(self) -> dict[str, Any]:
        """What the agent says of itself on its local door."""
        return await asyncio.to_thread(ask, self.data_dir, "/status")
