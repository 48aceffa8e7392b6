"""One client's connection under uvicorn: it is cut, and its buffers freed, when the client does not read.

uvicorn alone would wait for ever: a stream that cannot be written stays paused, and a finished answer that nobody
reads keeps its bytes until the other side closes.
"""

import math
from asyncio import TimerHandle, Transport
from collections import deque
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from brain_coord.gateway.cycle import Cycle
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.http import CONNECTION, Scope, lines_of


@lru_cache(maxsize=256)
def _parts(url: bytes) -> tuple[bytes, str, bytes]:
    """The path of a request line as it came and decoded, and the query."""
    parsed = httptools.parse_url(url)
    raw = parsed.path or b"/"  # a whole URL may end with its host
    path = raw.decode("ascii")
    return raw, unquote(path) if "%" in path else path, parsed.query or b""


_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}

BUFFER_BYTES: Final = 1024 * 1024
"""Most that is kept for a client before its answer is held back; an answer of usual size fits, and frees its node."""

ROOM_BYTES: Final = 64 * 1024
"""What a client must have read of a full buffer to count as reading."""

AHEAD: Final = 16
"""Requests that may be sent ahead before no more are read: as long as it is read, a client that leaves is seen."""


class _Deaf:
    """Stands where the parser stood, when nothing more can be understood."""

    def feed_data(self, data: bytes) -> None:
        """It comes to nothing."""


def _parser(connection: "ClientConnection") -> httptools.HttpRequestParser:
    """A new one. What follows a request that wants the connection closed is dropped, and no fault."""
    parser = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class ClientConnection(HttpToolsProtocol):
    """An HTTP connection; a request finds its cycle in its scope.

    Attributes:
        cycle: the request that is being answered, or was last.
        stall_s: how long the buffer may be full, or the rest of a finished answer unread, before the cut.
        stalled: whether it was cut for that.
        loose_bytes: what was read since the last piece of a body.
    """

    stall_s: float = 30.0
    loose_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stalled = False
        self.cycle: Cycle | None = None  # type: ignore[assignment] # one of our own kind
        self._incoming: Cycle | None = None
        """Takes the body that is being read; none while a websocket begins."""
        self._pipelined: deque[tuple[Cycle, Scope]] = deque()
        self._stall_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's own
        """Let a client lag a little before its answer is held back."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES, low=BUFFER_BYTES - ROOM_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """No client, nobody to wait for."""
        self._stop_waiting()
        self.connections.discard(self)
        if self.cycle is not None:
            self.cycle.lost()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        # None of these waits for the garbage collector to find that it and this connection hold each other.
        self.parser = None  # type: ignore[assignment] # as uvicorn does
        self.cycle = self._incoming = None
        self._pipelined.clear()

    def head_begins(self) -> None:
        """The next request begins."""
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers.append((name.lower(), value))

    def head_is_whole(self) -> None:
        """A request begins, with a cycle of our own."""
        parser, headers = self.parser, self.headers
        method, http_version = parser.get_method(), parser.get_http_version()
        if parser.should_upgrade():  # the parser stops here: `upgrade_asked` says how it goes on
            self._incoming = None
            self.scope = {"method": method.decode("ascii"), "headers": headers, "http_version": http_version}  # type: ignore[typeddict-item] # all that is read of it
            return
        self.headers = []  # for what stands behind the body, which is no part of the head
        self._incoming = cycle = Cycle(self, method, headers, keep_alive=parser.should_keep_alive())
        if http_version != "1.1":
            cycle.keep_alive = cycle.chunks = cycle.awaits_continue = False
        raw_path, path, query = _parts(self.url)
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": http_version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": method.decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
            "extensions": {CONNECTION: cycle},
        }
        if self._finished:
            self._start(cycle, scope)
        else:  # a pipelined request waits for the answer before it
            self._pipelined.append((cycle, scope))
            if len(self._pipelined) >= AHEAD:
                self.flow.pause_reading()

    def _start(self, cycle: Cycle, scope: Scope) -> None:
        """Answer it; the rest of the answer before it is watched no more, but what stands in the way of this one is."""
        self.cycle = cycle
        if self._stall_timer is not None:
            self._stop_waiting()
        if self.flow.write_paused:
            self.pause_writing()
        cycle.task = task = self.loop.create_task(cycle.run(self.app, scope))
        self.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self.loose_bytes = 0
        cycle = self._incoming
        if cycle is None or cycle.response_complete:
            return
        cycle.body = body = cycle.body + body
        if len(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        if cycle.news is not None:
            cycle.news.set()

    def on_message_complete(self) -> None:
        """The body is whole."""
        cycle = self._incoming
        if cycle is None:
            return
        cycle.more_body = False
        if cycle.news is not None:
            cycle.news.set()
        if cycle.response_complete and not cycle.keep_alive:
            self.hang_up()

    @property
    def _finished(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def pause_writing(self) -> None:
        """The buffer is full: a client that reads has room in it again within `stall_s`."""
        super().pause_writing()
        if not self._finished:
            self._stop_waiting()
            self._stall_timer = self.loop.call_later(self.stall_s, self._cut)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if not self._finished:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """A finished answer may be large and the line slow; as long as it goes on leaving, it may take its time."""
        if self._stall_timer is not None:
            self._stop_waiting()
        if self.transport.get_write_buffer_size():
            self._watch_rest(math.inf)
        if not self.transport.is_closing():
            if self.flow.read_paused:
                self.flow.resume_reading()
            if self._pipelined:
                self._start(*self._pipelined.popleft())
            else:
                self.becomes_idle()

    def last_answered(self) -> None:
        """The connection ends behind the rest of a body: to close on one that still comes would reset it, answer and all."""
        cycle = self._incoming
        if cycle is None or not cycle.more_body:
            self.transport.close()
        elif self.transport.can_write_eof():
            self.transport.write_eof()

    def becomes_idle(self) -> None:
        """No whole request waits for an answer."""

    def upgrade_asked(self, rest: bytes) -> bytes:
        """What to read on after a head that asks for another protocol, and what stands behind it.

        Who asks for a websocket gets it; any other request is read again as if it had not asked (RFC 9110, 7.8), as the
        parser takes its body for the other protocol.
        """
        method, headers, version = self.scope["method"], self.scope["headers"], self.scope["http_version"]
        framing = [header for header in headers if header[0] in (b"content-length", b"transfer-encoding")]
        bodiless = all(header == (b"content-length", b"0") for header in framing)
        if method == "CONNECT":
            self.refuse(fault("invalid_request", "this is no proxy: CONNECT is not served"))
        elif method != "GET" or version != "1.1" or not bodiless or not self._should_upgrade():
            self.parser = _parser(self)
            lines = lines_of(header for header in headers if header[0] != b"upgrade")
            return b"%b %b HTTP/%b\r\n%b\r\n%b" % (method.encode(), self.url, version.encode(), lines, rest)
        elif self._finished:
            self.handle_websocket_upgrade()
        else:
            self.refuse(fault("invalid_request", "a websocket needs a connection on which no answer is due"))
        return b""

    def refuse(self, error: ApiError) -> None:
        """Nothing that comes from here on is understood: what was asked before is answered, then the connection ends."""
        self.parser = _Deaf()  # type: ignore[assignment] # all of a parser that is used then
        self._incoming = None
        if self._pipelined and self._pipelined[-1][0].more_body:
            self._pipelined.pop()
        cycle = self.cycle
        broken = cycle is not None and cycle.more_body
        if cycle is not None and not self._finished and not broken:
            last = self._pipelined[-1][0] if self._pipelined else cycle
            last.keep_alive = False
            return
        if not (broken and cycle is not None and cycle.response_started) and not self.transport.is_closing():
            body, standing = error.encode(), lines_of(self.server_state.default_headers)
            lines = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n" % (standing, len(body))
            lines += lines_of([*error.extra_headers(), (b"connection", b"close")])
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[error.status], lines, body))
        self.hang_up()

    def hang_up(self) -> None:
        """Close it when what was written has left, as long as the client reads that."""
        self.transport.close()
        if self.cycle is not None:
            self.cycle.lost()
        if self._stall_timer is None:
            self._watch_rest(math.inf)

    def _watch_rest(self, before: float) -> None:
        rest = self.transport.get_write_buffer_size()
        if rest >= before:
            self._cut()
        elif rest:
            self._stall_timer = self.loop.call_later(self.stall_s, self._watch_rest, rest)

    def _stop_waiting(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _cut(self) -> None:
        self.stalled = True
        self.transport.abort()
