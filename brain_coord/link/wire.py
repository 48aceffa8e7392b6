"""The coordinator's end of a websocket: whole data frames go straight through, everything else takes uvicorn's way.

A token's event is one small frame, in from a node. The general parser costs several times what the frame is worth, and the
general server stops reading after each message. So whole, unfragmented text and binary frames are read and written here;
the handshake, control frames, fragments and every fault are left to the library, which sees the bytes as they came.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from brain_coord.link.socket import FRAMES

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without the C extension
    from websockets.utils import apply_mask

READ_AHEAD_BYTES: Final = 256 * 1024
"""How much may lie unread before the connection stops reading."""

_TEXT: Final = 0x81
_BINARY: Final = 0x82
_MASKED: Final = 0x80
_LARGE: Final = 64 * 1024
"""From here on a copy costs more than a second write."""


class _Events:
    """What came and was not received yet; as much of a queue as the server uses."""

    __slots__ = ("_events", "_told", "_waiter", "unread_bytes")

    def __init__(self) -> None:
        self._events: deque[tuple[Any, int]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._told: Callable[[], None] | None = None
        self.unread_bytes = 0

    def put_nowait(self, event: Any, size: int = 0) -> None:
        """One more event."""
        self._events.append((event, size))
        self.unread_bytes += size
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._told is not None:
            told, self._told = self._told, None
            told()

    def alert(self, told: Callable[[], None]) -> None:
        """Call this once, as soon as an event lies there."""
        if self._events:
            told()
        else:
            self._told = told

    def get_nowait(self) -> Any:
        """The next event, which lies there."""
        event, size = self._events.popleft()
        self.unread_bytes -= size
        return event

    def empty(self) -> bool:
        """Whether nothing lies there."""
        return not self._events

    async def get(self) -> Any:
        """The next event. One task at a time waits."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.get_nowait()


class NodeSocket(WebSocketsSansIOProtocol):
    """A websocket connection of a node, or of a browser tab."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue: Any = _Events()
        self._rest = b""
        self._fast = True
        self._aligned = False

    def start_keepalive(self) -> None:
        """Links have pings of their own, by which round trips are timed; only the others need the library's."""
        if not self.scope["path"].endswith("/node/v1/link"):
            super().start_keepalive()

    def data_received(self, data: bytes) -> None:
        """Take whole data frames out; hand everything else on."""
        if not self._fast or not self.handshake_complete:
            super().data_received(data)
            return
        if not self._aligned:
            self._aligned = True
            if self.conn.reader.buffer:  # it sent frames before the handshake was answered: the library has begun one
                self._fast = False
                super().data_received(data)
                return
        if self._rest:
            data = self._rest + data
        start, end = 0, len(data)
        while start < end:
            taken = self._frame(data, start, end)
            if not taken:
                break
            start += taken
            if not self._fast:
                super().data_received(data[start - taken :])
                self._rest = b""
                return
        self._rest = data[start:] if start else data

    def _frame(self, data: bytes, start: int, end: int) -> int:
        """Deal with the frame that begins at `start`: how long it is, 0 while it is not whole.

        A frame that is not a whole message ends the fast way for good, with nothing of it taken.
        """
        if end - start < 6:
            return 0
        head, size = data[start], data[start + 1]
        if size & _MASKED == 0:
            return self._give_up()
        size &= 0x7F
        at = start + 2
        if size == 126:
            if end - start < 8:
                return 0
            size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
        elif size == 127:
            if end - start < 14:
                return 0
            size, at = int.from_bytes(data[at : at + 8], "big"), at + 8
        limit = self.config.ws_max_size
        if size > limit:
            return self._give_up()
        body, stop = at + 4, at + 4 + size
        if stop > end:
            return 0
        if head in (_TEXT, _BINARY):
            payload = apply_mask(data[body:stop], data[at:body])
            if head == _BINARY:
                self._came({"type": "websocket.receive", "bytes": payload}, size)
            else:
                try:
                    text = payload.decode()
                except UnicodeDecodeError:
                    return self._give_up()
                self._came({"type": "websocket.receive", "text": text}, size)
        elif head in (0x88, 0x89, 0x8A):  # close, ping, pong: whole frames too, but the library's business
            super().data_received(data[start:stop])
        else:
            return self._give_up()
        return stop - start

    def _give_up(self) -> int:
        self._fast = False
        return 1  # how much does not matter: the caller hands the frame on from its first byte

    def _came(self, event: Any, size: int) -> None:
        if self.close_sent:
            return
        self.queue.put_nowait(event, size)
        if not self.read_paused and self.queue.unread_bytes > READ_AHEAD_BYTES:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_connect(self, event: Any) -> None:
        """Put the connection where a slot finds it."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: Any = self.scope["extensions"]
            extensions[FRAMES] = self

    def alert(self, told: Callable[[], None]) -> None:
        """Call this once, as soon as an event is there."""
        self.queue.alert(told)

    def poll(self) -> Any:
        """The next event if it is there, else `None`."""
        return None if self.queue.empty() else self._read(self.queue.get_nowait())

    async def receive(self) -> Any:
        """The next event for the application."""
        return self._read(await self.queue.get())

    def _read(self, event: Any) -> Any:
        if self.read_paused and self.queue.unread_bytes < READ_AHEAD_BYTES // 2:
            self.read_paused = False
            self.transport.resume_reading()
        return event

    async def send(self, message: Any) -> None:
        """Send data at once; anything else the library's way. A text and bytes together are two frames in one write."""
        if (
            message["type"] != "websocket.send"
            or not self.handshake_complete
            or self.close_sent
            or self.disconnected
            or self.initial_response is not None
            or self.conn.state is not State.OPEN
        ):
            await super().send(message)
            return
        if not self.writable.is_set():
            await self.writable.wait()
            if self.disconnected or self.close_sent:
                await super().send(message)
                return
        text, data = message.get("text"), message.get("bytes")
        before = b""
        if text is not None:
            encoded = text.encode()
            before = _head(_TEXT, len(encoded)) + encoded
        if data is None:
            self.transport.write(before)
            return
        head = before + _head(_BINARY, len(data))
        if len(data) < _LARGE:
            self.transport.write(head + data)
        else:
            self.transport.write(head)
            self.transport.write(data)


def _head(kind: int, size: int) -> bytes:
    """What stands before a frame's data."""
    if size < 126:
        return bytes((kind, size))
    if size < 65536:
        return bytes((kind, 126)) + size.to_bytes(2, "big")
    return bytes((kind, 127)) + size.to_bytes(8, "big")
