"""The answer of a hop as frames in one HTTP body: the engine's status, its bytes as they come, and how it ended. Pure.

A frame is one byte that tells its kind, four bytes with its length, and its content. The 200 of the HTTP answer itself
says that the node has accepted the job.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

HEAD: Final = b"H"
DATA: Final = b"D"
END: Final = b"E"
FRAMES: Final = "application/vnd.brain.frames"
"""The type of such a body."""

MOST_BYTES: Final = 64 * 1024 * 1024


class BadFrame(Exception):  # noqa: N818 — what was read is one
    """The other coordinator did not send frames."""


def frame(kind: bytes, content: bytes) -> bytes:
    """One frame."""
    return kind + len(content).to_bytes(4, "big") + content


def told(kind: bytes, **members: Any) -> bytes:
    """One frame that holds a JSON object."""
    return frame(kind, orjson.dumps(members))


class FrameReader:
    """Cuts received bytes into frames; what is not whole yet waits for more."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every frame that is whole now, as `(kind, content)`.

        Raises:
            BadFrame: these are no frames.
        """
        self._buffer += data
        while len(self._buffer) >= 5:
            kind, size = bytes(self._buffer[:1]), int.from_bytes(self._buffer[1:5], "big")
            if kind not in (HEAD, DATA, END) or size > MOST_BYTES:
                raise BadFrame("the other coordinator answered in another form")
            if len(self._buffer) < 5 + size:
                return
            content = bytes(self._buffer[5 : 5 + size])
            del self._buffer[: 5 + size]
            yield kind, content
