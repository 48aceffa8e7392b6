"""Several real coordinator processes on one PostgreSQL and one Redis."""

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any

import httpx

from brain_coord.cli.shapes import SHAPES
from tests.support.coordinator import CoordinatorProcess, brain_coord, eventually
from tests.support.ports import free_port
from tests.support.schemas import hold

CONFIG = """
[server]
port = {port}
drain_s = {drain_s}
[cluster]
name = "{name}"
address = "http://127.0.0.1:{port}"
secret_file = "secret"
ttl_s = {ttl_s}
leave_s = {leave_s}
[join]
heartbeat_s = 2.0
token_required = false
{more}
"""


class Cluster:
    """Replicas by name; each with a data folder of its own."""

    def __init__(
        self, folder: Path, database_url: str, redis_url: str, names: tuple[str, ...] = ("a", "b", "c"), **settings: Any
    ) -> None:
        self.folder = folder
        self.secret = secrets.token_hex(32)
        self.env = {"BRAIN_COORD_DATABASE_URL": database_url, "BRAIN_COORD_CLUSTER_URL": redis_url}
        self._settings = {"ttl_s": 6.0, "leave_s": 0.5, "drain_s": 10.0, "more": "", **settings}
        self.replicas: dict[str, CoordinatorProcess] = {}
        self._more = ("--log-level", "info")
        for name in names:
            self.start(name)

    def start(self, name: str, redis_url: str | None = None, **more: str) -> CoordinatorProcess:
        """One replica, for the first time or again; by a way of its own to Redis, and with more in its environment, if
        that is given the first time."""
        known = self.replicas.get(name)
        if known is not None:
            known.restart()
            return known
        folder = self.folder / name
        folder.mkdir(mode=0o700, parents=True)
        config = CONFIG.format(name=name, port=free_port(), **self._settings)
        (folder / "config.toml").write_text(config)
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text(self.secret)
        env = {**self.env, **more} if redis_url is None else {**self.env, "BRAIN_COORD_CLUSTER_URL": redis_url, **more}
        port = config.split("port = ")[1].split("\n")[0]
        replica = CoordinatorProcess(folder, *self._more, env=env, port=int(port))
        self.replicas[name] = replica
        return replica

    def __getitem__(self, name: str) -> CoordinatorProcess:
        return self.replicas[name]

    @property
    def running(self) -> dict[str, CoordinatorProcess]:
        return {name: each for name, each in self.replicas.items() if each.program.running}

    def status(self, name: str) -> dict[str, Any]:
        """What `brain-coord status` says of the cluster at one replica, held against its schema."""
        text = self.command(name, "status", "--json")
        hold(SHAPES, "status", text)
        return dict(json.loads(text)["cluster"])

    def ready(self, name: str) -> dict[str, Any]:
        """What `/readyz` says."""
        return dict(httpx.get(f"{self[name].url}/readyz", trust_env=False).json())

    def health(self, name: str) -> dict[str, Any]:
        """What it says of the cluster."""
        return dict(self.ready(name)["cluster"])

    def wait_together(self, *names: str, timeout_s: float = 60.0) -> None:
        """Until each of these replicas sees exactly these, and Redis."""
        expected = sorted(names or self.running)

        def together() -> bool:
            seen = [self.health(name) for name in expected]
            return all(each["state"] == "together" and each["replicas"] == expected for each in seen)

        eventually(together, timeout_s)

    def wait_state(self, state: str, timeout_s: float = 60.0) -> None:
        """Until every running replica is `together` or `alone`."""
        eventually(lambda: all(self.health(name)["state"] == state for name in self.running), timeout_s)

    def wait_recorded(self, timeout_s: float = 60.0) -> None:
        """Until every receipt of the running replicas is in the store."""
        expected = {"state": "ok", "spooled": 0}
        eventually(
            lambda: all(self.ready(each)["receipts"].items() >= expected.items() for each in self.running), timeout_s
        )

    def command(self, name: str, *arguments: str) -> str:
        """What a command on a replica's data folder prints."""
        done = brain_coord(*arguments, "--data-dir", str(self[name].data_dir), env=self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_nodes(self, count: int, timeout_s: float = 90.0, **members: Any) -> None:
        """Until every running replica shows so many nodes with these members in their public view."""

        def seen() -> bool:
            return all(
                sum(all(node.get(name) == value for name, value in members.items()) for node in each.nodes()) == count
                for each in self.running.values()
            )

        eventually(seen, timeout_s)

    async def off_loop(self, work: Any, *arguments: Any, **named: Any) -> Any:
        """Wait for something without holding up the nodes that this process plays."""
        return await asyncio.to_thread(work, *arguments, **named)

    def kill(self, name: str) -> None:
        """kill -9."""
        os.kill(self[name].program.pid, 9)
        self[name].program.wait()

    def close(self) -> None:
        for each in self.replicas.values():
            each.program.kill()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
