"""One HTTP/1.1 connection to an engine, one request at a time; its answer is pushed on as it is read.

No task and no queue stands between the socket and the slot: what one read brought, freed of its framing by the parser,
goes on in one piece.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpResponseParser

HEAD_BYTES: Final = 64 * 1024
"""Most that an answer's head may hold."""

_JOINED_BYTES: Final = 64 * 1024
"""Up to here a copy costs less than a second write."""
_ANY_FORMAT: Final = 32 + zlib.MAX_WBITS
_COMPRESSED: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
_READ: Final = frozenset(
    {b"content-type", b"retry-after", b"content-length", b"transfer-encoding", b"content-encoding"}
)


class Asker(Protocol):
    """Who asked; told of an answer in this order, and of nothing more once it was `whole`, `lost` or hung up on."""

    def head(self, status: int, content_type: str, retry_after: str | None) -> None:
        """The engine's status is known."""

    def data(self, data: bytes) -> None:
        """More of the answer."""

    def flush(self) -> None:
        """That is all for now."""

    def whole(self) -> None:
        """That was all of it."""

    def lost(self, reason: str, *, heard: bool) -> None:
        """The connection broke; `heard` tells whether any of the answer had come."""


class EngineConnection(asyncio.Protocol):
    """A connection to an engine.

    Args:
        kept: called when an answer is over and the connection can take another request.
    """

    def __init__(self, kept: Callable[["EngineConnection"], None]) -> None:
        self._kept = kept
        self._transport: asyncio.Transport | None = None
        self._asker: Asker | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._fields: dict[bytes, bytes] = {}
        self._parser = HttpResponseParser(self)
        self._paused = False
        self._reset()

    def _reset(self) -> None:
        self._status = 0
        self._head_bytes = self._own_pieces = 0
        self._heard = self._headed = self._whole = self._more = False
        self._reusable = self._until_close = False
        self._decoder: zlib._Decompress | None = None

    # --- what the pool and the job do with it -------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether it can still be used."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, asker: Asker, head: bytes, body: Sequence[bytes]) -> None:
        """Send one request and push its answer to `asker`."""
        assert self._transport is not None
        self._asker = asker
        self._reset()
        if len(body) == 1 and len(body[0]) <= _JOINED_BYTES:
            self._transport.write(head + body[0])
            return
        self._transport.write(head)
        for part in body:  # never joined into another copy
            self._transport.write(part)

    def pause(self) -> None:
        """Read nothing more for now: whoever gets the answer is slow, and the engine has to feel it."""
        if not self._paused and self.open:
            assert self._transport is not None
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and self.open:
            assert self._transport is not None
            self._paused = False
            self._transport.resume_reading()

    def hang_up(self) -> None:
        """Close at once, which ends the engine's work."""
        self._asker = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone: an answer without a length ends here, any other is lost."""
        asker, self._asker = self._asker, None
        if asker is None:
            return
        if exc is None and self._headed and self._until_close:
            asker.whole()
        else:
            asker.lost(type(exc).__name__ if exc else "it closed the connection", heard=self._heard)

    def data_received(self, data: bytes) -> None:
        """Parse one read and push on what it brought."""
        if self._asker is None:
            self.hang_up()  # it speaks without being asked
            return
        self._heard = True
        garbled: str | None = None
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            garbled = f"its answer is no HTTP ({type(error).__name__})"
        fault = None if self._headed else self._tell_head(len(data))
        pieces = self._pieces
        if self._more:
            del pieces[self._own_pieces :]
        if pieces and fault is None:
            read = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            if self._decoder is not None:
                read, fault = _decompressed(self._decoder, read)
            if read and self._asker is not None:
                self._asker.data(read)
        if self._whole and fault is None:
            self._over()
        elif fault is not None or garbled is not None:
            self._broken(fault or garbled or "")
        elif self._asker is not None:  # nobody hung up while they were told
            self._asker.flush()

    def _tell_head(self, read_bytes: int) -> str | None:
        """Pass on the head if it is there; what is wrong with it, if anything is."""
        assert self._asker is not None
        if not self._status:
            self._head_bytes += read_bytes
            return "the head of its answer is too large" if self._head_bytes > HEAD_BYTES else None
        self._headed = True
        fields = self._fields
        coding = fields.get(b"content-encoding", b"identity").strip().lower()
        if coding in _COMPRESSED:
            # Unasked, and its Content-Encoding goes no further than here.
            self._decoder = zlib.decompressobj(_ANY_FORMAT)
        elif coding not in (b"identity", b""):
            return f"its answer is compressed in a way that nobody asked for ({coding.decode('latin-1')[:20]})"
        retry_after = fields.get(b"retry-after")
        self._asker.head(
            self._status,
            fields.get(b"content-type", b"application/json").decode("latin-1"),
            None if retry_after is None else retry_after.decode("latin-1"),
        )
        return None

    def _over(self) -> None:
        asker, self._asker = self._asker, None
        assert self._transport is not None
        if asker is None:  # it hung up while it was told
            return
        if self._reusable and not self._more and not self._transport.is_closing():
            if self._paused:
                self.resume()
            self._kept(self)
        else:
            self._transport.close()
        asker.whole()

    def _broken(self, reason: str) -> None:
        asker, heard = self._asker, self._heard
        self.hang_up()
        if asker is not None:
            asker.lost(reason, heard=heard)

    # --- what the parser calls ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._whole and not self._more:
            # A second answer to one request: neither part of this one, nor to be taken for the next one's.
            self._more, self._own_pieces = True, len(self._pieces)
        self._fields.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer, or a trailer."""
        if not self._status:
            name = name.lower()
            if name in _READ:
                self._fields[name] = value

    def on_headers_complete(self) -> None:
        """The head is there; those of interim answers (100 Continue) say nothing."""
        status = self._parser.get_status_code()
        if status < 200 or self._whole:
            return
        self._status = status
        self._reusable = self._parser.should_keep_alive()
        chunked = b"chunked" in self._fields.get(b"transfer-encoding", b"").lower()
        self._until_close = not chunked and b"content-length" not in self._fields

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self._status:
            self._whole = True


def _decompressed(decoder: "zlib._Decompress", data: bytes) -> tuple[bytes, str | None]:
    """What the bytes hold, and what is wrong with them, if anything is."""
    try:
        return decoder.decompress(data), None
    except zlib.error:
        return b"", "its answer does not decompress"
