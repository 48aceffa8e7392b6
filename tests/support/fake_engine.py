"""An OpenAI-like engine on loopback whose answers are scripted: statuses, bytes and their timing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Script = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """One request as the engine saw it."""

    path: str
    headers: dict[str, str]
    body: bytes


async def stream(request: web.Request, pieces: list[bytes], pause_s: float = 0.0, **headers: str) -> web.StreamResponse:
    """Write the pieces one by one."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"} | headers)
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece)
        await asyncio.sleep(pause_s)
    await response.write_eof()
    return response


@dataclass
class FakeEngine:
    """Answers every job path with `script`; lists `models`."""

    script: Script | None = None
    models: list[str] = field(default_factory=lambda: ["served-name"])
    api_key: str | None = None
    port: int = 0
    packs: bool = False
    """Compresses its answers, whatever the caller accepts."""
    requests: list[Seen] = field(default_factory=list)
    running: int = 0
    hung_up: int = 0
    """Requests whose caller left before the answer was whole."""

    async def __aenter__(self) -> "FakeEngine":
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.on_response_prepare.append(self._pack)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/{path:.*}", self._job)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _pack(self, _: web.Request, response: web.StreamResponse) -> None:
        if self.packs:
            response.enable_compression(web.ContentCoding.gzip)

    async def _list(self, request: web.Request) -> web.Response:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        data: list[dict[str, Any]] = [{"id": name, "object": "model", "max_model_len": 4096} for name in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _job(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(Seen(request.path, dict(request.headers), body))
        self.running += 1
        try:
            if self.script is None:
                return web.json_response({"echo": len(body)})
            return await self.script(request, body)
        except (asyncio.CancelledError, ConnectionResetError):
            self.hung_up += 1
            raise
        finally:
            self.running -= 1
