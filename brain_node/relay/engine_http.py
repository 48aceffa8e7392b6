"""One HTTP/1.1 connection to an engine, one request at a time; its answer is pushed on as it is read.

No task and no queue stands between the socket and the slot: what one read brought, freed of its framing by the parser,
goes on in one piece.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

HEAD_BYTES: Final = 64 * 1024
"""Most that an answer's head may hold."""

_JOINED_BYTES: Final = 64 * 1024
"""Up to here a copy costs less than a second write."""
_ANY_FORMAT: Final = 32 + zlib.MAX_WBITS
_NOT_PACKED: Final = "its answer does not decompress"
_COMPRESSED: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})


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

    # Of the answer that is coming; what follows its head says no more than that.
    _status = 0
    _head_bytes = 0
    _whole = False
    _decoder: "zlib._Decompress | None" = None
    _cut = False
    """Whether what was packed has begun and not ended."""
    _reusable = False
    _until_close = False
    # After one of these there is no further answer.
    _fault: str | None = None
    """What is wrong with its head or its coding."""
    _more = False
    _own_pieces = 0

    def __init__(self, kept: Callable[["EngineConnection"], None]) -> None:
        self._kept = kept
        self._transport: asyncio.Transport | None = None
        self._asker: Asker | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._fields: dict[bytes, bytes] = {}
        self.on_header = self._fields.__setitem__
        self._parser = HttpResponseParser(self)
        self._paused = False

    # --- what the pool and the job do with it -------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether it can still be used."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def _heard(self) -> bool:
        """Whether any of the answer has come."""
        return self._status > 0 or self._head_bytes > 0

    def ask(self, asker: Asker, head: bytes, body: Sequence[bytes]) -> None:
        """Send one request and push its answer to `asker`."""
        assert self._transport is not None
        self._asker = asker
        self._status = self._head_bytes = 0
        self._whole = self._cut = False
        self._decoder = None
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
        if exc is None and self._status and self._until_close and not self._cut:
            asker.whole()
        else:
            asker.lost(type(exc).__name__ if exc else "it closed the connection", heard=self._heard)

    def data_received(self, data: bytes) -> None:
        """Parse one read and push on what it brought."""
        asker = self._asker
        if asker is None:
            self.hang_up()  # it speaks without being asked
            return
        garbled: str | None = None
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            garbled = f"its answer is no HTTP ({type(error).__name__})"
            self._reusable = False
        if not self._status:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._fault = "the head of its answer is too large"
        pieces = self._pieces
        if self._more:
            del pieces[self._own_pieces :]
        if pieces and self._fault is None:
            read = b"".join(pieces)
            pieces.clear()
            if self._decoder is not None:
                read = self._decompressed(self._decoder, read)
            if read:
                asker.data(read)
        if self._asker is None:  # it hung up while it was told
            return
        if self._whole and self._fault is None:
            self._over(asker)
        elif self._fault is not None or garbled is not None:
            self._broken(self._fault or garbled or "")
        else:
            asker.flush()

    def _over(self, asker: Asker) -> None:
        if self._cut:
            self._broken(_NOT_PACKED)
            return
        self._asker = None
        asker.whole()  # before all else: the end of an answer is waited for
        assert self._transport is not None
        if self._reusable and not self._more and not self._transport.is_closing():
            if self._paused:
                self.resume()
            self._kept(self)
        else:
            self._transport.close()

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

    def on_headers_complete(self) -> None:
        """The head is there, and told at once; those of interim answers (100 Continue) say nothing."""
        status = self._parser.get_status_code()
        if self._whole or self._asker is None:
            return
        if not 200 <= status <= 599:
            if not 100 <= status < 200:
                self._fault = f"its status is none ({status})"
            return
        fields = {}
        for name, value in self._fields.items():
            fields[name.lower()] = value
        self._status = status
        self._reusable = self._parser.should_keep_alive()
        self._until_close = (
            b"content-length" not in fields and b"chunked" not in fields.get(b"transfer-encoding", b"").lower()
        )
        if (coding := fields.get(b"content-encoding")) is not None and not self._decodes(coding.strip().lower()):
            return
        retry_after = fields.get(b"retry-after")
        self._asker.head(
            status,
            fields.get(b"content-type", b"application/json").decode("latin-1"),
            None if retry_after is None else retry_after.decode("latin-1"),
        )

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self._status:
            self._whole = True

    # ------------------------------------------------------------------------------------------------------------------

    def _decodes(self, coding: bytes) -> bool:
        """Prepare for the coding of an answer; false, and a fault, when it is an unknown one."""
        if coding in _COMPRESSED:
            # Unasked, and its Content-Encoding goes no further than here.
            self._decoder = zlib.decompressobj(_ANY_FORMAT)
        elif coding not in (b"identity", b""):
            shown = coding.decode("latin-1")[:20]
            self._fault = f"its answer is compressed in a way that nobody asked for ({shown})"
        return self._fault is None

    def _decompressed(self, decoder: "zlib._Decompress", data: bytes) -> bytes:
        """What the bytes hold; nothing, and a fault, when that cannot be told."""
        try:
            read = decoder.decompress(data)
        except zlib.error:
            read = b""
            self._fault = _NOT_PACKED
        if decoder.unused_data:  # what comes behind its end, if anybody sends that, must not be dropped in silence
            self._fault = _NOT_PACKED
        self._cut = not decoder.eof
        return read
