"""The client's side of one answer: an HTTP response that begins late, keeps alive while it waits, and ends once."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any, Final

from brain_coord.gateway import sse

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

STALL_CHECK_S: Final = 1.0
EVENT_STREAM: Final = (b"content-type", b"text/event-stream; charset=utf-8")
NO_BUFFERING: Final = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class ClientStream:
    """A streamed answer to one client. `begun` tells whether the status has left."""

    def __init__(
        self,
        send: Send,
        headers: Callable[[], Headers],
        on_stall: Callable[[], None],
        *,
        keepalive_s: float,
        stall_s: float,
    ) -> None:
        self._send = send
        self._headers = headers
        self._on_stall = on_stall
        self._keepalive_s = keepalive_s
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._sending_since: float | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._stall_check = self._loop.call_later(STALL_CHECK_S, self._check_stall)
        self.begun = False
        self.ended = False
        self.on_commit: Callable[[], None] = lambda: None
        """Called before the first bytes of an answer are passed on."""

    def waits(self) -> None:
        """From now on, send a comment whenever nothing was sent for the keep-alive time, until `write` is called."""
        if self._waiting is None:
            self._waiting = self._loop.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._keepalive_s)
            await self._begin()
            await self._body(sse.comment(b"waiting for the first output"))

    async def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            headers = [EVENT_STREAM, *NO_BUFFERING, *self._headers()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        self._sending_since = monotonic()
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            self._sending_since = None

    async def _stop_waiting(self) -> None:
        task, self._waiting = self._waiting, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        if self._waiting is not None:
            self.on_commit()
            await self._stop_waiting()
        if not self.begun:
            await self._begin()
        self._sending_since = monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending_since = None

    async def end(self, data: bytes) -> None:
        """Send the last bytes and end the response."""
        if self._waiting is not None:
            await self._stop_waiting()
        if not self.begun:
            await self._begin()
        self.ended = True
        await self._body(data, more=False)

    def _check_stall(self) -> None:
        since = self._sending_since
        if since is not None and monotonic() - since > self._stall_s:
            self._on_stall()
            return
        self._stall_check = self._loop.call_later(STALL_CHECK_S, self._check_stall)

    async def close(self) -> None:
        """Stop the timers; the response stays as it is."""
        self._stall_check.cancel()
        await self._stop_waiting()
