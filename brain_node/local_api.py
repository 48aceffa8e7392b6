"""The agent's door for its own machine: HTTP over a unix socket that only its owner can open."""

import http.client
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from aiohttp import web

SOCKET_NAME: Final = "agent.sock"
CLIENT_TIMEOUT_S: Final = 5.0


class NoAgentError(Exception):
    """No agent runs with this data folder."""


class Control(Protocol):
    """What the door leads to."""

    def status(self) -> dict[str, Any]:
        """The whole state."""

    def why(self) -> dict[str, Any]:
        """What the coordinator said lately."""

    def set_draining(self, draining: bool) -> None:
        """Take no new jobs, or take them again."""

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
            ("POST", "/drain", self._drain),
            ("POST", "/resume", self._resume),
            ("POST", "/stop", self._stop),
        ):
            app.router.add_route(method, path, handler)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.SockSite(self._runner, _listen(self._folder)).start()

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

    async def _drain(self, _: web.Request) -> web.Response:
        self._control.set_draining(True)
        return _json({"draining": True})

    async def _resume(self, _: web.Request) -> web.Response:
        self._control.set_draining(False)
        return _json({"draining": False})

    async def _stop(self, _: web.Request) -> web.Response:
        self._control.stop("local API")
        return _json({"stopping": True})


def _within(folder: Path, act: Callable[[str], None]) -> None:
    """Act on the socket's address inside a folder, however long the folder's path: addresses end at 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        act(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
    finally:
        os.close(descriptor)


def _listen(folder: Path) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    (folder / SOCKET_NAME).unlink(missing_ok=True)
    # bind() makes the file with the mode that the umask leaves: 0600 from its first instant.
    before = os.umask(0o177)
    try:
        _within(folder, door.bind)
    except BaseException:
        door.close()
        raise
    finally:
        os.umask(before)
    door.setblocking(False)
    return door


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, folder: Path) -> None:
        super().__init__("localhost", timeout=CLIENT_TIMEOUT_S)
        self._folder = folder

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        _within(self._folder, self.sock.connect)


def ask(data_dir: Path, path: str, method: str = "GET") -> dict[str, Any]:
    """One answer from the agent that runs with a data folder.

    Raises:
        NoAgentError: none runs.
        OSError: it does not answer.
    """
    connection = _UnixConnection(data_dir)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        if response.status != http.HTTPStatus.OK:
            raise OSError(f"the agent answers with HTTP {response.status}")
        answer: dict[str, Any] = orjson.loads(body)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise NoAgentError(f"no agent runs with the data folder {data_dir}") from None
    except http.client.HTTPException as error:
        raise OSError(f"the agent's answer broke off ({type(error).__name__})") from None
    finally:
        connection.close()
    return answer
