"""The coordinator's end of a websocket: whole data frames go straight through, everything else takes uvicorn's way.

A token's event is one small frame, in from a node. The general parser costs several times what the frame is worth, and the
general server stops reading after each message. So whole, unfragmented text and binary frames are read and written here;
the handshake, control frames, fragments and every fault are left to the library, which sees the bytes as they came.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from brain_coord.link.slot import KEPT_BYTES, READ_AHEAD_BYTES, Receiver
from brain_coord.link.socket import FRAMES

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without the C extension
    from websockets.utils import apply_mask

_TEXT: Final = 0x81
_BINARY: Final = 0x82
_CONTROL: Final = frozenset({0x88, 0x89, 0x8A})
"""Close, ping and pong, whole."""
_MASKED: Final = 0x80
_HEAD: Final = Struct("!BB")
_HEAD_16: Final = Struct("!BBH")
_HEAD_64: Final = Struct("!BBQ")
_AT_ONCE_BYTES: Final = 8192
"""So much of what came is looked at in one pass of the loop, and whatever frame begins in it: a read full of frames of nothing
takes a second, and anybody may send one."""

_UNREAD_BYTES: Final = 1024 * 1024
"""Where so much waits for the other end to read, its pings are no question any more; a job's body leaves far less waiting."""

_LARGE: Final = 64 * 1024
"""From here on a copy costs more than a second write."""


class _Events:
    """What came and was not received yet; as much of a queue as the server uses. A receiver gets it all instead."""

    __slots__ = ("_events", "_receiver", "_waiter", "unread_bytes")

    def __init__(self) -> None:
        self._events: deque[tuple[Any, int]] = deque()
        self._receiver: Receiver | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.unread_bytes = 0

    def put_nowait(self, event: Any, size: int = 0) -> None:
        """One more event."""
        if self._receiver is not None:
            if event["type"] == "websocket.receive":
                data = event.get("bytes")
                self._receiver.came(event["text"] if data is None else bytes(data))
            else:
                self._receiver.ended()
            return
        self._events.append((event, size))
        self.unread_bytes += size
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def hand_to(self, receiver: Receiver) -> None:
        """Everything from now on, and what lies there."""
        self._receiver, events = receiver, self._events
        while events:
            self.put_nowait(*events.popleft())
        self.unread_bytes = 0

    async def get(self) -> Any:
        """The next event. One task at a time waits."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        event, size = self._events.popleft()
        self.unread_bytes -= size
        return event


class NodeSocket(WebSocketsSansIOProtocol):
    """A websocket connection of a node, or of a browser tab: an ASGI one until somebody takes its frames as they come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue: Any = _Events()
        self._limit_bytes = self.config.ws_max_size
        self._came: Callable[[bytes | str], None] = self._keep
        self._receiver: Receiver | None = None
        self._held = False
        self._rest = b""
        self._rest_due = False
        """Whether there is more in the rest than a frame that has begun; nothing is read until it was looked at."""
        self._fast = False

    def start_keepalive(self) -> None:
        """Links have pings of their own, by which round trips are timed; only the others need the library's."""
        if not self.scope["path"].endswith("/node/v1/link"):
            super().start_keepalive()

    # --- in -----------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take whole data frames out; hand everything else on."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self.close_sent:
            self._fast = False  # what still comes is the library's, which waits for the other side's close
        start = self._take_frames(data) if self._fast else 0
        if not self._fast:
            stop = start + _AT_ONCE_BYTES
            super().data_received(data[start:stop])
            start = stop
        if start < len(data):
            self._rest = data[start:]
            if start >= _AT_ONCE_BYTES and not (self._rest_due or self.transport.is_closing()):
                self._rest_due = True
                self.transport.pause_reading()
                self.loop.call_soon(self._look_at_rest)

    def _look_at_rest(self) -> None:
        """The next pass of the loop; while somebody holds the connection, the pass after that."""
        if self._rest_due and not (self.read_paused or self.transport.is_closing()):
            self._rest_due = False
            self.transport.resume_reading()
            self.data_received(b"")

    def _take_frames(self, data: bytes) -> int:
        """Deal with the whole frames at the start of `data`; returns where what is left begins.

        A frame that is not a whole message ends the fast way for good, with nothing of it taken.
        """
        start, end, limit_bytes, came = 0, len(data), self._limit_bytes, self._came
        last = min(end - 5, _AT_ONCE_BYTES)
        while start < last:
            head, size, body = data[start], data[start + 1] - _MASKED, start + 6
            if size > 125:
                if size == 126:
                    body += 2
                    size = data[start + 2] << 8 | data[start + 3]
                else:
                    body += 8
                    if body > end:
                        break
                    size = int.from_bytes(data[start + 2 : start + 10], "big")
            stop = body + size
            if size < 0 or size > limit_bytes:  # no mask, or too large
                self._fast = False
                break
            if stop > end:
                break
            if head == _BINARY:
                came(apply_mask(data[body:stop], data[body - 4 : body]))
            elif head == _TEXT:
                try:
                    text = apply_mask(data[body:stop], data[body - 4 : body]).decode()
                except UnicodeDecodeError:
                    self._fast = False
                    break
                came(text)
            elif head in _CONTROL:  # whole frames too, but the library's business
                super().data_received(data[start:stop])
            else:
                self._fast = False
                break
            start = stop
        return start

    def _keep(self, frame: bytes | str) -> None:
        kind = "bytes" if type(frame) is bytes else "text"
        self.queue.put_nowait({"type": "websocket.receive", kind: frame}, max(len(frame), KEPT_BYTES))
        if self.queue.unread_bytes > READ_AHEAD_BYTES:
            self.hold()

    def send_receive_event_to_app(self) -> None:
        """A message that the library put together. It stops reading after each; a receiver says when that has to be."""
        super().send_receive_event_to_app()
        if self._receiver is not None and not self._held:
            self.go_on()

    def hand_to(self, receiver: Receiver) -> None:
        """Everything that comes from now on, and what lies there already."""
        self._receiver, self._came, self._held = receiver, receiver.came, False
        self.queue.hand_to(receiver)
        if not self._held:
            self.go_on()

    def hold(self) -> None:
        """Read no more for now."""
        self._held = True
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        self._held = False
        if self.read_paused:
            self.read_paused = False
            if self._rest_due:
                self.loop.call_soon(self._look_at_rest)
            else:
                self.transport.resume_reading()

    def handle_ping(self) -> None:
        """Answer it, unless the other end reads no answers."""
        if self.transport.get_write_buffer_size() > _UNREAD_BYTES:
            self.transport.abort()
        else:
            super().handle_ping()

    def handle_events(self) -> None:
        """What the library made of what came; a head that it did not take gets its answer, and the end."""
        super().handle_events()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_connect(self, event: Any) -> None:
        """Put the connection where a slot finds it."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: Any = self.scope["extensions"]
            extensions[FRAMES] = self

    async def receive(self) -> Any:
        """The next event for the application."""
        event = await self.queue.get()
        if self.queue.unread_bytes < READ_AHEAD_BYTES // 2:
            self.go_on()
        return event

    # --- out ----------------------------------------------------------------------------------------------------------

    async def send(self, message: Any) -> None:
        """Send data at once; anything else the library's way, which also says what is wrong with it."""
        if message["type"] != "websocket.send" or not self._open:
            await super().send(message)
            if message["type"] == "websocket.accept":
                # A node that sent frames before the handshake was answered: the library has begun one.
                self._fast = self._open and not self.conn.reader.buffer
            return
        text = message.get("text")
        await self.send_frames(None if text is None else text.encode(), message.get("bytes"))

    async def send_frames(self, text: bytes | None, data: bytes | memoryview | None) -> None:
        """Send a text, or bytes, or a frame of each in one write, the text first.

        Raises:
            RuntimeError: the connection is closed.
        """
        if not self.writable.is_set():
            await self.writable.wait()
        if not self._open:
            raise RuntimeError("the websocket is closed")
        before = b"" if text is None else _head(_TEXT, len(text)) + text
        if data is None:
            self.transport.write(before)
            return
        head = before + _head(_BINARY, len(data))
        if len(data) < _LARGE:
            self.transport.write(head + data)
        else:
            self.transport.write(head)
            self.transport.write(data)

    @property
    def _open(self) -> bool:
        return self.conn.state is State.OPEN and not (self.close_sent or self.disconnected)


def _head(kind: int, size: int) -> bytes:
    """What stands before a frame's data."""
    if size < 126:
        return _HEAD.pack(kind, size)
    if size < 65536:
        return _HEAD_16.pack(kind, 126, size)
    return _HEAD_64.pack(kind, 127, size)
