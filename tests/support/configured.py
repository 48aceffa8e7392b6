"""A coordinator process whose configuration file a test rewrites while it runs."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx

from brain_coord.admin import ask
from tests.support.coordinator import CoordinatorProcess


class Configured(CoordinatorProcess):
    """Reads `config.toml` in its data folder.

    Attributes:
        secret: a key on the paid plan, which is not routed to nodes first.
    """

    def __init__(self, data_dir: Path, *tables: str, env: dict[str, str] | None = None) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.file = data_dir / "config.toml"
        self.file.write_text("\n".join(tables))
        super().__init__(data_dir, "--open-join", env=env)
        self.secret = self.key("paid")

    def reload(self, *tables: str, told: str = "configuration reloaded") -> str:
        """Write the file anew and send SIGHUP; the line that tells what came of it."""
        self.file.write_text("\n".join(tables))
        start = len(self.program.lines)
        self.program.send(signal.SIGHUP)
        return self.program.wait_for(told, start=start)

    def http(self, secret: str | None = None, **options: Any) -> httpx.AsyncClient:
        """A client with a key that takes no proxy."""
        headers = {"Authorization": f"Bearer {secret or self.secret}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=60, **options)

    async def chat(self, model: str, *, stream: bool = False, secret: str | None = None, **more: Any) -> httpx.Response:
        """One chat request."""
        messages = more.pop("messages", [{"role": "user", "content": "hello"}])
        body = {"model": model, "messages": messages, "stream": stream, **more}
        async with self.http(secret) as http:
            return await http.post("/v1/chat/completions", json=body)

    async def receipt(self, receipt_id: str) -> dict[str, Any]:
        """The body of a receipt."""
        async with self.http() as http:
            return dict((await http.get(f"/v1/receipts/{receipt_id}")).json()["body"])

    async def until_metric(self, name: str, value: float) -> None:
        """Return once a metric without labels has this value."""
        async with asyncio.timeout(20.0), httpx.AsyncClient(trust_env=False, timeout=60) as http:
            while f"\n{name} {float(value)}\n" not in (await http.get(f"{self.url}/metrics")).text:  # noqa: ASYNC110 — another process's
                await asyncio.sleep(0.02)

    async def target(self, name: str) -> dict[str, Any]:
        """What the operator sees of an upstream."""
        listed = await asyncio.to_thread(ask, self.data_dir, "targets")
        return dict(next(each for each in listed if each["name"] == name))

    async def until_target(self, name: str, **members: Any) -> dict[str, Any]:
        """The same, once it has these members."""
        async with asyncio.timeout(20.0):
            while True:
                seen = await self.target(name)
                if all(seen[key] == value for key, value in members.items()):
                    return seen
                await asyncio.sleep(0.02)
