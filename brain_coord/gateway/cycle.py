"""One request on a client's connection and its answer, under uvicorn: as few calls and writes as an answer needs.

uvicorn's own takes a head apart header by header and writes it by itself. Here the head leaves with the first piece of the
body, which in nearly every answer follows at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf
from re import compile as regex
from typing import Any, Final, Protocol

import structlog
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from brain_coord.gateway.errors import ApiError, draining, fault
from brain_coord.gateway.http import Event, Scope, joined, lines_of, send_error

log = structlog.get_logger("brain.server")

_CONTROL: Final = bytes(range(0x20)).replace(b"\t", b"") + b"\x7f"
_FRAMING: Final = regex(rb"\n(content-length|transfer-encoding|connection): ([^\r]*)").findall
_CHUNK: Final = b"%b%x\r\n%b\r\n"
_LAST_CHUNK: Final = _CHUNK + b"0\r\n\r\n"
_LARGE: Final = 64 * 1024
"""From here on a copy costs more than a second write."""


class Line(Protocol):
    """The connection that a request came on."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @property
    def transport(self) -> asyncio.Transport:
        """What answers are written to."""

    @property
    def flow(self) -> FlowControl:
        """Whether reading and writing are paused."""

    @property
    def server_state(self) -> ServerState:
        """Of the server; it has the headers of every answer."""

    @property
    def stalled(self) -> bool:
        """Whether it was cut because the client had stopped reading."""

    def on_response_complete(self) -> None:
        """The last byte of an answer was written."""

    def last_answered(self) -> None:
        """That answer was the last on this connection."""

    def hang_up(self) -> None:
        """Close it, whatever is still due."""


class Cycle:
    """Speaks ASGI to the application.

    Attributes:
        headers: of the request by lower-case name; what was repeated stands as one list.
        body: what came of the request's body and was not taken.
        more_body: whether more of it comes.
        news: set when something came, where somebody waits for it.
        disconnected: whether the client left before its answer was complete.
        keep_alive: whether the connection stays open after the answer.
        chunks: whether the client reads an answer in chunks.
        response_started: whether the answer has a head.
        response_complete: whether the last byte of the answer was written.
        more_lines: headers that are added to the head of the answer, whoever sends it.
        awaits_continue: whether the client wants to be asked before it sends the body.
        task: in which the application answers.
    """

    body: bytes = b""
    more_body = True
    news: asyncio.Event | None = None
    disconnected = False
    chunks = True
    response_started = False
    response_complete = False
    more_lines = b""
    awaits_continue = False
    task: asyncio.Task[None] | None = None
    _gone: Callable[[], None] | None = None
    _ended = False
    """Whether the application knows that no more of the body comes."""
    _head = b""
    _chunked: bool | None = None
    _left_bytes: float = 0
    """What is due of the body by its content-length; `inf` where the end of the connection ends it."""

    def __init__(self, line: Line, method: bytes, headers: Sequence[tuple[bytes, bytes]], *, keep_alive: bool) -> None:
        self._line = line
        self._transport = line.transport
        self.flow = line.flow
        self._bodiless = method == b"HEAD"
        self.keep_alive = keep_alive
        self.headers: dict[bytes, bytes] = dict(headers)
        if len(self.headers) < len(headers):
            self.headers = joined(headers)
        if b"expect" in self.headers and self.headers[b"expect"].lower() == b"100-continue":
            self.awaits_continue = True

    async def run(self, app: Callable[[Any, Any, Any], Awaitable[None]], scope: Scope) -> None:
        """Let the application answer. What it breaks off ends with the connection."""
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:  # by a server that stops and waits no longer
            await self._fail(draining())
        except BaseException:
            log.exception("the application failed")
        finally:
            self._line.server_state.tasks.discard(self.task)
        if not self.response_complete and not self.disconnected:
            await self._fail(fault("internal", "a fault of the coordinator; its log says more"))

    async def _fail(self, error: ApiError) -> None:
        if self.response_complete or self.disconnected:
            return
        if self.response_started:
            self._line.hang_up()
        else:
            self.keep_alive = False
            await send_error(self, error, b"")

    @property
    def stalled(self) -> bool:
        """Whether the connection was cut because the client had stopped reading."""
        return self._line.stalled

    def whole_body(self) -> bytes | None:
        """The request's body, if all of it is there; what is asked for is taken."""
        if self.more_body or self.disconnected:
            return None
        body, self.body, self._ended = self.body, b"", True
        return body

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the client leaves before the answer is complete."""
        if self.disconnected:
            self._line.loop.call_soon(gone)
        else:
            if self.flow.read_paused:
                self.flow.resume_reading()  # or its leaving would not be seen
            self._gone = gone

    def lost(self) -> None:
        """The client has left."""
        self.disconnected = not self.response_complete
        if self.news is not None:
            self.news.set()
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    async def receive(self) -> Event:
        """The next of the body, or that the client left or has its answer."""
        if self.awaits_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.awaits_continue = False
        while not (self.disconnected or self.response_complete or self.body or not (self.more_body or self._ended)):
            self.flow.resume_reading()
            if self.news is None:
                self.news = asyncio.Event()
            self.news.clear()
            await self.news.wait()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body, self._ended = self.body, b"", not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Event) -> None:
        """Write the answer."""
        flow = self.flow
        if flow.write_paused and not self.disconnected:
            self.write_head()
            await flow.drain()
        if self.disconnected:
            return
        due = "http.response.body" if self.response_started else "http.response.start"
        if message["type"] != due or self.response_complete:
            raise RuntimeError(f"{message['type']} is not due in this answer")
        if self.response_started:
            self.write(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._begin(message["status"], message.get("headers", ()))

    def begin(self, status: int, lines: bytes, length_bytes: int | None = None) -> None:
        """The head of an answer; it leaves with the first piece of the body.

        Args:
            status: of the answer.
            lines: its headers as they are written, without those about its length.
            length_bytes: of the body, `None` for one that comes piece by piece.
        """
        if length_bytes is None:
            self._take_head(status, lines + self._piecewise())
        else:
            self._take_head(status, b"%bcontent-length: %d\r\n" % (lines, length_bytes))
            self._chunked, self._left_bytes = False, length_bytes

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The head of an answer that an application wrote; it leaves by itself when nothing follows."""
        pairs = list(headers)
        lines = lines_of(pairs)
        if len(lines) - len(lines.translate(None, _CONTROL)) != 2 * len(pairs):  # one line end each
            raise RuntimeError("a header of the answer has a control character in it")
        for name, value in _FRAMING(b"\n" + lines):
            self._framed(name, value)
        if self._bodiless:
            self._chunked = False
        elif self._chunked is None and status not in (204, 304):
            lines += self._piecewise()
        self._take_head(status, lines)
        self._line.loop.call_soon(self.write_head)

    def _piecewise(self) -> bytes:
        """The header of a body that comes piece by piece: in chunks, or to a client from before those up to the end."""
        self._chunked = self.chunks
        if self._chunked:
            return b"transfer-encoding: chunked\r\n"
        self._left_bytes = inf
        return b""

    def _take_head(self, status: int, lines: bytes) -> None:
        if self.response_started:
            raise RuntimeError("this answer has a head already")
        self.response_started = True
        if self.awaits_continue:
            # It may or may not send its body now, so nothing behind this answer could be understood.
            self.awaits_continue = False
            self.keep_alive = self.keep_alive and not self.more_body
        standing = lines_of(self._line.server_state.default_headers)
        end = b"\r\n"
        if not self.keep_alive and b"\nconnection: close\r" not in b"\n" + lines:
            end = b"connection: close\r\n\r\n"
        self._head = b"%b%b%b%b%b" % (STATUS_LINE[status], standing, lines, self.more_lines, end)

    def _framed(self, name: bytes, value: bytes) -> None:
        """Take note of how the answer is framed, and whether the connection ends with it."""
        if name == b"content-length":
            if self._chunked is None:
                self._left_bytes, self._chunked = int(value), False
        elif name == b"connection":
            if b"close" in [token.lower().strip() for token in value.split(b",")]:
                self.keep_alive = False
        elif value.lower() == b"chunked":
            self._left_bytes, self._chunked = 0, True

    def write_head(self) -> None:
        """Let a head go that nothing has followed yet."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def write(self, body: bytes | memoryview, *, more: bool) -> None:
        """A piece of the answer's body, behind its head; for nobody, when the client has left."""
        if self.disconnected:
            return
        head, self._head = self._head, b""
        size = len(body)
        if self._chunked:
            if size >= _LARGE:
                self._transport.write(b"%b%x\r\n" % (head, size))
                self._transport.write(body)
                self._transport.write(b"\r\n" if more else b"\r\n0\r\n\r\n")
            elif size:
                self._transport.write((_CHUNK if more else _LAST_CHUNK) % (head, size, body))
            elif head or not more:
                self._transport.write(head if more else head + b"0\r\n\r\n")
        else:
            if self._bodiless:
                body, self._left_bytes = b"", 0
            elif self._left_bytes < size:
                raise RuntimeError("the answer is longer than its content-length")
            else:
                self._left_bytes -= size
            if size >= _LARGE and head:
                self._transport.write(head)
                self._transport.write(body)
            elif head or body:
                self._transport.write(head + body)
        if not more:
            self._end()

    def _end(self) -> None:
        if self._left_bytes and self._left_bytes != inf:
            raise RuntimeError("the answer is shorter than its content-length")
        self.response_complete = True
        self._gone = None
        if self.news is not None:
            self.news.set()
        if not self.keep_alive:
            self._line.last_answered()
        self._line.on_response_complete()
