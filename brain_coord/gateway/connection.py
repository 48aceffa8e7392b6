"""One client's connection under uvicorn: it is cut, and its buffers freed, when the client does not read.

uvicorn alone would wait for ever: a stream that cannot be written stays paused, and a finished answer that nobody
reads keeps its bytes until the other side closes.
"""

from asyncio import TimerHandle, Transport
from typing import Any, Final

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from brain_coord.gateway.errors import fault
from brain_coord.gateway.http import CONNECTION

BUFFER_BYTES: Final = 1024 * 1024
"""Most that is kept for a client before its answer is held back; an answer of usual size fits, and frees its node."""

ROOM_BYTES: Final = 64 * 1024
"""What a client must have read of a full buffer to count as reading."""


class ClientConnection(HttpToolsProtocol):
    """An HTTP connection that a request finds in its scope.

    Attributes:
        stall_s: how long the buffer may be full, or the rest of a finished answer unread, before the cut.
        stalled: whether it was cut for that.
    """

    stall_s: float = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stalled = False
        self._stall_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Let a client lag a little before its answer is held back."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES, low=BUFFER_BYTES - ROOM_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """No client, nobody to wait for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Put the connection where a request finds it."""
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self}  # type: ignore[dict-item]
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
