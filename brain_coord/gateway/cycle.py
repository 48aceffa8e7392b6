"""One request on a client's connection and its answer, under uvicorn: as few calls and writes as an answer needs.

uvicorn's own takes a head apart header by header and writes it by itself. Here the head leaves with the first piece of the
body, which in nearly every answer follows at once.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection"})
_LARGE: Final = 64 * 1024
"""From here on a copy costs more than a second write."""


class Line(Protocol):
    """The connection that a request came on."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @property
    def stalled(self) -> bool:
        """Whether it was cut because the client had stopped reading."""

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the client leaves before the answer that runs is complete."""


class Cycle(RequestResponseCycle):
    """Speaks ASGI to the application."""

    def __init__(self, line: Line, **options: Any) -> None:
        super().__init__(**options)
        self._line = line
        self._head = b""

    @property
    def stalled(self) -> bool:
        """Whether the connection was cut because the client had stopped reading."""
        return self._line.stalled

    def whole_body(self) -> bytes | None:
        """The request's body, if all of it is there; what is asked for is taken."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body, self.body = bytes(self.body), bytearray()
        return body

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the client leaves before the answer is complete."""
        if self.disconnected:
            self._line.loop.call_soon(gone)
        else:
            self._line.watch(gone)

    async def send(self, message: Any) -> None:
        """Write the answer."""
        flow = self.flow
        if flow.write_paused and not self.disconnected:
            self.write_head()
            await flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.response_started and not self.response_complete:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start" and not self.response_started:
            self._begin(message["status"], message.get("headers", ()))
        else:
            await super().send(message)  # which says what is wrong with it

    def _begin(self, status: int, headers: Any) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        pairs = [*self.default_headers, *headers]
        close = False
        for name, value in pairs:
            if name in _FRAMING:
                close = self._framed(name, value) or close
        lines = [STATUS_LINE[status], *[b"%b: %b\r\n" % pair for pair in pairs]]
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or _CONTROL.search(head):
            raise RuntimeError("a header of the answer has a control character in it")
        if not self.keep_alive and not close:
            head += b"connection: close\r\n"
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            self.chunked_encoding = True
            head += b"transfer-encoding: chunked\r\n"
        self._head = head + b"\r\n"
        self._line.loop.call_soon(self.write_head)

    def _framed(self, name: bytes, value: bytes) -> bool:
        """Take note of how the answer is framed; whether the connection ends with it."""
        if name == b"content-length" and self.chunked_encoding is None:
            self.expected_content_length, self.chunked_encoding = int(value), False
        elif name == b"transfer-encoding" and value.lower() == b"chunked":
            self.expected_content_length, self.chunked_encoding = 0, True
        elif name == b"connection" and b"close" in [token.lower().strip() for token in value.split(b",")]:
            self.keep_alive = False
            return True
        return False

    def write_head(self) -> None:
        """Let a head go that nothing has followed yet."""
        if self._head:
            self.transport.write(self._head)
            self._head = b""

    def _send_body(self, body: bytes, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            self._write(head, b"")
        elif self.chunked_encoding:
            end = b"" if more else b"0\r\n\r\n"
            if not body:
                self._write(head, end)
            elif len(body) < _LARGE:
                self._write(b"%b%x\r\n%b\r\n%b" % (head, len(body), body, end), b"")
            else:
                self._write(b"%b%x\r\n" % (head, len(body)), body)
                self.transport.write(b"\r\n" + end)
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("the answer is longer than its content-length")
            self._write(head, body)
        if more:
            return
        if self.expected_content_length:
            raise RuntimeError("the answer is shorter than its content-length")
        self.response_complete = True
        self.message_event.set()
        self.scope.pop("extensions", None)  # this cycle stands there: the two would wait for the garbage collector
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _write(self, first: bytes, second: bytes) -> None:
        if len(second) < _LARGE:
            first, second = first + second, b""
        if first:
            self.transport.write(first)
        if second:
            self.transport.write(second)
