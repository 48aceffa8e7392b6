"""The client's side of one answer: an HTTP response that begins late, keeps alive while it waits, and ends once."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from brain_coord.gateway import sse
from brain_coord.gateway.http import Connection

EVENT_STREAM: Final = (
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\n"
    b"x-accel-buffering: no\r\n"  # nginx would keep events back
)
KEEP_ALIVE: Final = sse.comment(b"waiting for the engine")


def _nobody() -> None:
    """Nobody has to be told of a commit."""


class ClientStream:
    """A streamed answer to one client. Only whole events are written, so a comment may stand between any two.

    Attributes:
        begun: whether the status has left.
        ended: whether the last byte has.
        on_commit: called before the first bytes of an answer are passed on.
    """

    begun = False
    ended = False
    _sending = False
    _committed = False
    _comment: asyncio.Task[None] | None = None

    def __init__(self, connection: Connection, lines: Callable[[], bytes], *, keepalive_s: float) -> None:
        """Args: `lines` gives the headers when they leave; after `keepalive_s` of silence a comment is sent."""
        self._connection = connection
        self._flow = connection.flow
        self._lines = lines
        self._keepalive_s = keepalive_s
        self._loop = asyncio.get_running_loop()
        self._last = monotonic()
        self._timer = self._loop.call_later(keepalive_s, self._check_quiet)
        self.on_commit: Callable[[], None] = _nobody

    def write_now(self, data: bytes) -> bool:
        """Send bytes of the answer, unless that has to wait for anything; whether they were sent."""
        if self._comment is not None or self._flow.write_paused:
            return False
        if not self._committed:
            self._commit()
        self._last = monotonic()
        self._connection.write(data, more=True)
        return True

    async def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        while not self.write_now(data):
            await self._room()

    async def end(self, data: bytes) -> None:
        """Send the last bytes and end the response."""
        self._timer.cancel()
        self.on_commit = _nobody
        self.ended = True
        if self._comment is not None or self._flow.write_paused:
            await self._room()
        if not self.begun:
            self._begin()
        self._connection.write(data, more=False)

    async def close(self) -> None:
        """Stop keeping alive; the response stays as it is. One that was ended needs no closing."""
        self._timer.cancel()
        self.on_commit = _nobody
        if self._comment is not None:
            await self._comment

    async def _room(self) -> None:
        """Wait until a comment has left and the client has room."""
        if self._comment is not None:
            await self._comment
        if self._flow.write_paused:
            self._last, self._sending = monotonic(), True
            await self._flow.drain()
            self._sending = False

    def _begin(self) -> None:
        self.begun = True
        self._connection.begin(200, EVENT_STREAM + self._lines())

    def _commit(self) -> None:
        self._committed = True
        committed, self.on_commit = self.on_commit, _nobody  # what is called holds this stream
        committed()
        if not self.begun:
            self._begin()

    def _check_quiet(self) -> None:
        """Send a comment when nothing was sent for the keep-alive time: proxies cut connections that look idle."""
        left = self._last + self._keepalive_s - monotonic()
        if left <= 0 and not self._sending and self._comment is None:
            self._last, left = monotonic(), self._keepalive_s
            self._comment = self._loop.create_task(self._keep_alive())
        self._timer = self._loop.call_later(max(left, 0.05), self._check_quiet)

    async def _keep_alive(self) -> None:
        try:
            if not self.begun:
                self._begin()
            if self._flow.write_paused:
                await self._flow.drain()
            self._connection.write(KEEP_ALIVE, more=True)
        finally:
            self._comment = None
