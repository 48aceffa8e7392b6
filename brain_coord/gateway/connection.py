"""One client's connection under uvicorn: it is cut, and its buffers freed, when the client does not read.

uvicorn alone would wait for ever: a stream that cannot be written stays paused, and a finished answer that nobody
reads keeps its bytes until the other side closes.
"""

import asyncio
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from brain_coord.gateway.cycle import Cycle
from brain_coord.gateway.errors import fault
from brain_coord.gateway.http import CONNECTION


@lru_cache(maxsize=256)
def _parts(url: bytes) -> tuple[bytes, str, bytes]:
    """The path of a request line as it came and decoded, and the query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return parsed.path, unquote(path) if "%" in path else path, parsed.query or b""


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
        self._gone: Callable[[], None] | None = None
        self._stall_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's own
        """Let a client lag a little before its answer is held back."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES, low=BUFFER_BYTES - ROOM_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """No client, nobody to wait for."""
        self._stop_waiting()
        super().connection_lost(exc)
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the client leaves before the answer that runs is complete."""
        self.flow.resume_reading()  # or its leaving would not be seen
        self._gone = gone

    def on_headers_complete(self) -> None:
        """A request begins, with a cycle of our own."""
        parser, scope = self.parser, self.scope
        http_version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if http_version != "1.1":
            scope["http_version"] = http_version
        if parser.should_upgrade() and self._should_upgrade():
            return
        raw_path, path, query = _parts(self.url)
        scope["path"] = self.root_path + path
        scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        scope["query_string"] = query
        before = self.cycle
        self.cycle = Cycle(
            self,
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope["extensions"] = {CONNECTION: self.cycle}  # type: ignore[dict-item] # one of our own
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:  # a pipelined request waits for the answer before it
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_message_begin(self) -> None:
        """The next request begins; the rest of the last answer is watched no more."""
        super().on_message_begin()
        self._stop_waiting()
        if self.flow.write_paused:
            self.pause_writing()

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
        self._gone = None
        super().on_response_complete()
        self._stop_waiting()
        self._watch_rest(None)

    def _watch_rest(self, before: int | None) -> None:
        rest = self.transport.get_write_buffer_size()
        if before is not None and rest >= before:
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
