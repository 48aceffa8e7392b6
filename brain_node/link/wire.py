"""The websocket of a slot: whole data frames go straight through, everything else takes the library's way.

A token's event is one small frame. The library's reader and its `send` cost several times what the frame is worth, and
hand it over through a queue and a task. So whole, unfragmented text and binary frames are read and written here; the
handshake (with its proxies and TLS), control frames, fragments and every fault are left to the library, which sees the
bytes as they came. A large binary frame goes on in the pieces in which it is read: a body is put together nowhere here.
"""

import os
import struct
from itertools import chain, repeat
from typing import Any, Final

from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from brain_node.contract.limits import MAX_LINK_MESSAGE_BYTES
from brain_node.link.slot import BINARY, TEXT, Receiver

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without the C extension
    from websockets.utils import apply_mask

_CONTROL: Final = frozenset({0x88, 0x89, 0x8A})
"""Close, ping and pong, whole."""
_MASKED: Final = 0x80
_PIECE_BYTES: Final = 16 * 1024
"""From here on the beginning of a binary frame is handed on before its end is there."""
_HEAD_END: Final = b"\r\n\r\n"
_SHORT: Final = struct.Struct("!BB4s")
_MEDIUM: Final = struct.Struct("!BBH4s")
_LONG: Final = struct.Struct("!BBQ4s")


# Masks that nobody can foresee, a block at a time: asking the kernel for each would be a system call a frame.
_blocks = map(struct.Struct("4s").iter_unpack, map(os.urandom, repeat(4096)))
_next_mask = chain.from_iterable(chain.from_iterable(_blocks)).__next__


class SlotConnection(ClientConnection):
    """A client connection that pushes what arrives to a receiver, and sends without waiting."""

    limit_bytes = MAX_LINK_MESSAGE_BYTES
    """Largest message taken."""
    _receiver: Receiver | None = None
    _fast = True
    """Until something comes that is not a whole frame of the usual form."""
    _answer_tail = b""
    """The last bytes of the handshake's answer so far."""
    _unread: bytes = b""
    _binary_left = 0
    """How much of a large binary frame, whose beginning was handed on, is still to come."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._out: list[bytes] = []

    # --- in -----------------------------------------------------------------------------------------------------------

    async def receive(self, receiver: Receiver) -> None:
        """Hand everything that arrives to `receiver`, until the connection ends.

        Raises:
            ConnectionClosed: it ended.
        """
        self._receiver = receiver
        if self._unread:
            self._frames(receiver, b"")
        while True:
            message = await self.recv()  # gets only what did not come in whole frames
            if self.protocol.state is not State.OPEN:
                continue
            if isinstance(message, str):
                receiver.text_came(message)
            else:
                receiver.bytes_came(message)

    def data_received(self, data: bytes) -> None:
        """Take whole data frames out; hand everything else on."""
        if self._receiver is not None and (self._fast or self._binary_left):
            self._fast = self.protocol.state is State.OPEN  # what comes after we closed is of no more use
            self._frames(self._receiver, data)
        elif not self._fast:
            super().data_received(data)
        elif self.response is None:
            self._handshaking(data)
        else:
            self._unread += data

    def _handshaking(self, data: bytes) -> None:
        """The library reads the answer to the handshake; frames may follow it in the same read."""
        before = self._answer_tail
        end = (before + data).find(_HEAD_END)
        if end < 0:
            self._answer_tail = (before + data)[1 - len(_HEAD_END) :]
            super().data_received(data)
            return
        cut = end + len(_HEAD_END) - len(before)
        super().data_received(data[:cut])
        if self.protocol.state is State.OPEN:
            self._unread = data[cut:]
        else:  # refused: what follows explains it
            self._fast = False
            if cut < len(data):
                super().data_received(data[cut:])

    def _frames(self, receiver: Receiver, data: bytes) -> None:
        """Deal with all frames in what came; whatever cannot be done here goes to the library from its first byte."""
        if self._unread:
            data = self._unread + data
        start, end = 0, len(data)
        if self._binary_left:
            start = min(self._binary_left, end)
            self._binary_left -= start
            if self._fast:
                receiver.bytes_came(data[:start])
        while self._fast and end - start > 1:
            head, size, body = data[start], data[start + 1], start + 2
            if size > 125:
                if size & _MASKED:
                    self._fast = False
                    break
                body += 2 if size == 126 else 8
                if body > end:
                    break
                size = int.from_bytes(data[start + 2 : body], "big")
            if size > self.limit_bytes:
                self._fast = False
                break
            stop = body + size
            if stop > end:  # not whole yet
                if head != BINARY or end - body < _PIECE_BYTES:
                    break
                self._binary_left = stop - end
                stop = end
            if head == BINARY:
                receiver.bytes_came(data[body:stop])
            elif head == TEXT:
                receiver.text_came(data[body:stop])
            elif head in _CONTROL:
                super().data_received(data[start:stop])
                self._fast = self.protocol.state is State.OPEN  # after the end, what still comes is of no more use
            else:
                self._fast = False
                break
            start = stop
        self._unread = data[start:]
        if not self._fast:
            rest, self._unread = self._unread, b""
            super().data_received(rest)

    # --- out ----------------------------------------------------------------------------------------------------------

    def put(self, data: bytes, kind: int = BINARY, /) -> None:
        """Put one message into the next `flush`."""
        size = len(data)
        mask = _next_mask()
        if size < 126:
            head = _SHORT.pack(kind, _MASKED | size, mask)
        elif size < 65536:
            head = _MEDIUM.pack(kind, _MASKED | 126, size, mask)
        else:
            head = _LONG.pack(kind, _MASKED | 127, size, mask)
        self._out.append(head + apply_mask(data, mask))

    def flush(self) -> None:
        """Write all that was put: in one system call, which costs more than all the rest of a short answer."""
        out = self._out
        if out and self.protocol.state is State.OPEN:  # else `receive` is about to say that it is over
            self.transport.write(b"".join(out))
        out.clear()

    def pause_writing(self) -> None:
        """The line is full."""
        super().pause_writing()
        if self._receiver is not None:
            self._receiver.pause()

    def resume_writing(self) -> None:
        """The line has room again."""
        super().resume_writing()
        if self._receiver is not None:
            self._receiver.resume()
