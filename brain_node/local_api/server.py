"""The agent's side of the local API."""

from pathlib import Path
from typing import Any, Protocol

import orjson
from aiohttp import web

from brain_node.contract.private_socket import listen_private
from brain_node.local_api.client import SOCKET_NAME


class Control(Protocol):
    """What the door leads to."""

    def status(self) -> dict[str, Any]:
        """The whole state."""

    def why(self) -> dict[str, Any]:
        """What the coordinator said lately."""

    def metrics(self) -> str:
        """The state as Prometheus text."""

    def set_draining(self, draining: bool) -> bool:
        """Take no new jobs, or take them again; tells whether that is remembered over restarts."""

    def stop(self, reason: str) -> None:
        """Begin a clean stop."""


def _json(body: Any) -> web.Response:
    return web.Response(body=orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS), content_type="application/json")


class LocalApi:
    """Serves the local API of one agent."""

    def __init__(self, data_dir: Path, control: Control) -> None:
        self._folder = data_dir
        self._control = control
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; an abandoned socket file is replaced. The caller holds the data folder's lock."""
        app = web.Application()
        for method, path, handler in (
            ("GET", "/status", self._status),
            ("GET", "/why", self._why),
            ("GET", "/metrics", self._metrics),
            ("POST", "/drain", self._drain),
            ("POST", "/resume", self._resume),
            ("POST", "/stop", self._stop),
        ):
            app.router.add_route(method, path, handler)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, listen_private(self._folder, SOCKET_NAME)).start()

    async def stop(self) -> None:
        """Stop listening and remove the socket file."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            (self._folder / SOCKET_NAME).unlink(missing_ok=True)

    async def _status(self, _: web.Request) -> web.Response:
        return _json(self._control.status())

    async def _why(self, _: web.Request) -> web.Response:
        return _json(self._control.why())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=self._control.metrics(), content_type="text/plain", charset="utf-8")

    async def _drain(self, _: web.Request) -> web.Response:
        return _json({"draining": True, "remembered": self._control.set_draining(True)})

    async def _resume(self, _: web.Request) -> web.Response:
        return _json({"draining": False, "remembered": self._control.set_draining(False)})

    async def _stop(self, _: web.Request) -> web.Response:
        self._control.stop("local API")
        return _json({"stopping": True})
