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
import orjson
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from brain_coord.gateway.cycle import Cycle
from brain_coord.gateway.errors import fault
from brain_coord.gateway.http import CONNECTION, Scope


@lru_cache(maxsize=256)
def _parts(url: bytes) -> tuple[bytes, str, bytes]:
    """The path of a request line as it came and decoded, and the query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return parsed.path, unquote(path) if "%" in path else path, parsed.query or b""


_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}

BUFFER_BYTES: Final = 1024 * 1024
"""Most that is kept for a client before its answer is held back; an answer of usual size fits, and frees its node."""

ROOM_BYTES: Final = 64 * 1024
"""What a client must have read of a full buffer to count as reading."""


class ClientConnection(HttpToolsProtocol):
    """An HTTP connection; a request finds its cycle in its scope.

    Attributes:
        stall_s: how long the buffer may be full, or the rest of a finished answer unread, before the cut.
        stalled: whether it was cut for that.
    """

    stall_s: float = 30.0

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
        """The next request begins; the rest of the last answer is watched no more."""
        self.url = b""
        self.headers = []
        if self._stall_timer is not None:
            self._stop_waiting()
        if self.flow.write_paused:
            self.pause_writing()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers.append((name.lower(), value))

    def head_is_whole(self) -> None:
        """A request begins, with a cycle of our own."""
        parser, headers = self.parser, self.headers
        method = parser.get_method()
        if parser.should_upgrade() and self._should_upgrade():
            self._incoming = None
            self.scope = {"method": method.decode("ascii"), "headers": headers}  # type: ignore[typeddict-item] # all that uvicorn reads
            return
        http_version = parser.get_http_version()
        keep_alive = http_version != "1.0" and parser.should_keep_alive()
        before = self.cycle
        self.cycle = self._incoming = cycle = Cycle(self, method, headers, keep_alive=keep_alive)
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
        if before is None or before.response_complete:
            self._start(cycle, scope)
        else:  # a pipelined request waits for the answer before it
            self.flow.pause_reading()
            self._pipelined.append((cycle, scope))

    def _start(self, cycle: Cycle, scope: Scope) -> None:
        cycle.task = task = self.loop.create_task(cycle.run(self.app, scope))
        self.tasks.add(task)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
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
        if cycle is None or cycle.response_complete:
            return
        cycle.more_body = False
        if cycle.news is not None:
            cycle.news.set()

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

    def becomes_idle(self) -> None:
        """No whole request waits for an answer."""

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

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP gets an answer in the one shape too."""
        body = orjson.dumps(fault("invalid_request", msg).body())
        self.transport.write(
            STATUS_LINE[400] + b"content-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()
