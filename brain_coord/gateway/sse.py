"""Server-sent events on bytes: where an event ends, and what its data is. Nothing is decoded that need not be.

All three line ends count (LF, CRLF, CR), also cut between reads. Written after WHATWG HTML, "interpreting an event
stream".
"""

import re
from collections.abc import Iterator
from typing import Final

_BOUNDARY: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n|\r\n\r(?!\n)|\r\r\n|\n\r(?!\n)")
_LINE: Final = re.compile(rb"\r\n|\n|\r")

COMMENT_ONLY: Final = None


class EventTooLarge(Exception):  # noqa: N818
    """An event grew past the limit without an end."""


class EventSplitter:
    """Cuts a byte stream into whole events, each with the blank line that ended it."""

    def __init__(self, limit_bytes: int) -> None:
        self._rest = b""
        self._limit = limit_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completed.

        Raises:
            EventTooLarge: more than the limit was kept waiting for an end.
        """
        data = self._rest + chunk if self._rest else chunk
        if data.endswith(b"\n\n") and b"\r" not in data:  # what engines send: whole events, LF only
            self._rest = b""
            if data.count(b"\n\n") == 1:
                return [data]
            return [event + b"\n\n" for event in data.split(b"\n\n") if event]
        events, start, search = [], 0, 0
        while (match := _BOUNDARY.search(data, search)) is not None:
            if match.end() == len(data) and data.endswith(b"\r"):
                break  # a lone CR at the end may be the first half of CRLF
            events.append(data[start : match.end()])
            start = search = match.end()
        self._rest = data[start:]
        if len(self._rest) > self._limit:
            raise EventTooLarge(f"an event is longer than {self._limit} bytes")
        return events

    def end(self) -> bytes:
        """What was left without a blank line when the stream ended."""
        rest, self._rest = self._rest, b""
        return rest


def data_of(event: bytes) -> bytes | None:
    """The data of an event with its lines joined by LF, `None` if it has no data line (a comment, a bare `retry:`)."""
    if event.startswith(b"data:") and event.endswith(b"\n\n") and b"\n" not in event[:-2] and b"\r" not in event:
        return event[6:-2] if event[5:6] == b" " else event[5:-2]
    lines = []
    for line in _LINE.split(event):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None


def event(data: bytes) -> bytes:
    """One event that carries `data`, which must be one line."""
    return b"data: " + data + b"\n\n"


def comment(text: bytes) -> bytes:
    """A comment line, which every reader skips; it keeps proxies from cutting an idle connection."""
    return b": " + text + b"\n\n"


def splice(event_bytes: bytes, member: bytes) -> bytes:
    """The event with one more member in its JSON object; everything else byte for byte as it was.

    Only for events whose data is one line that ends in `}`; others are returned unchanged.
    """
    at = event_bytes.rstrip(b"\r\n")
    if not at.endswith(b"}"):
        return event_bytes
    return (
        at[:-1].rstrip()
        + (b"," if not at[:-1].rstrip().endswith(b"{") else b"")
        + member
        + b"}"
        + event_bytes[len(at) :]
    )


def events_in(body: bytes) -> Iterator[bytes]:
    """Every event of a whole body, for tests and tools."""
    splitter = EventSplitter(len(body) + 1)
    yield from splitter.feed(body)
    if rest := splitter.end():
        yield rest
