"""Unpack an answer that was compressed although nobody asked for it: piece by piece, so that a bomb never stands in memory.

Pure. What is unpacked is handed out in bounded pieces, so whoever reads applies its limits to what the answer really is.
"""

import zlib
from typing import Final

PIECE_BYTES: Final = 64 * 1024


class Damaged(Exception):  # noqa: N818
    """The bytes are not what the encoding says, or they end too early."""


class Unpacker:
    """One compressed answer: `feed` it what came, `take` until nothing more can be said, `end` at its end."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflater = zlib.decompressobj(wbits)
        self._waiting = b""
        self._begun = False

    def feed(self, data: bytes) -> None:
        """Take bytes in."""
        self._waiting += data

    def take(self) -> bytes:
        """The next piece, at most `PIECE_BYTES`; nothing when more has to come first.

        Raises:
            Damaged: this cannot be unpacked.
        """
        while self._waiting:
            if self._inflater.eof:  # a further member: gzip files may be joined
                self._inflater = zlib.decompressobj(self._wbits)
            try:
                piece = self._inflater.decompress(self._waiting, PIECE_BYTES)
            except zlib.error as error:
                raise Damaged(str(error)) from None
            self._begun = True
            self._waiting = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            if piece:
                return piece
        return b""

    def end(self) -> None:
        """Nothing more comes.

        Raises:
            Damaged: it broke off.
        """
        if self._begun and not self._inflater.eof:
            raise Damaged("it broke off")


_WBITS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def unpacker_of(encoding: str) -> Unpacker | None:
    """For a `Content-Encoding`; `None` for a plain answer.

    Raises:
        Damaged: an encoding that is not known here.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _WBITS:
        raise Damaged(f"the encoding {name[:40]} is not known here")
    return Unpacker(_WBITS[name])
