"""A real coordinator process on a free port, with keys and tokens made by its own command line."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.support.processes import Program

T = TypeVar("T")


def brain_coord(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of `brain-coord` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "brain_coord", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )


def eventually(check: Callable[[], T], timeout_s: float = 30.0) -> T:
    """The first truthy answer of `check`; what it last said is shown when the time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {answer!r}"
        time.sleep(0.05)


class CoordinatorProcess:
    """`brain-coord serve`, started with further options, restartable on the same data directory and port."""

    def __init__(self, data_dir: Path, *options: str, env: dict[str, str] | None = None, port: int = 0) -> None:
        self.data_dir = data_dir
        self._options = options
        self._env = env
        self.port = port
        self.program = self._start()

    def _start(self) -> Program:
        program = Program(
            [
                sys.executable,
                "-m",
                "brain_coord",
                "serve",
                "--data-dir",
                str(self.data_dir),
                "--port",
                str(self.port),
                "--json-logs",
                *self._options,
            ],
            env=self._env,
        )
        try:
            line = program.wait_for("brain-coord listens on ")
        except BaseException:
            program.kill()
            raise
        self.url = line.rsplit(" ", 1)[1]
        self.port = int(self.url.rsplit(":", 1)[1].split("/")[0])
        return program

    def restart(self) -> None:
        """Start again after the process has ended."""
        assert not self.program.running
        self.program = self._start()

    def command(self, *arguments: str) -> Any:
        """The JSON that a command on this data directory prints."""
        done = brain_coord(*arguments, "--data-dir", str(self.data_dir), "--json", env=self._env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def key(self, plan: str = "free") -> str:
        return str(self.command("key", "create", "--plan", plan)["key"])

    def token(self, *options: str) -> str:
        return str(self.command("token", "create", *options)["token"])

    def nodes(self) -> list[dict[str, Any]]:
        with httpx.Client(trust_env=False) as client:
            return list(client.get(f"{self.url}/v1/nodes").json()["data"])

    def wait_for_node(self, node_id: str | None = None, timeout_s: float = 150.0, **members: Any) -> dict[str, Any]:
        """The (only, or named) node once its public view has these members, for example `state="ONLINE"`."""

        def find() -> dict[str, Any] | None:
            return next(
                (
                    node
                    for node in self.nodes()
                    if node_id in (None, node["node_id"])
                    and all(node.get(name) == value for name, value in members.items())
                ),
                None,
            )

        return eventually(find, timeout_s)

    def __enter__(self) -> "CoordinatorProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.program.kill()
