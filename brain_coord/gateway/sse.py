"""Server-sent events on bytes: where an event ends, and what its data is. Nothing is decoded that need not be.

All three line ends count (LF, CRLF, CR), also cut between reads. Written after WHATWG HTML, "interpreting an event
stream".
"""

import re
from typing import Final

_BOUNDARY: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
"""Two line ends. Atomic, so that one CRLF is never read as a CR and an LF."""

_LINE: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""May stand before the first event of a stream."""

_OBJECT: Final = re.compile(rb"data:[^\r\n]*\}(?=[^\S\r\n]*(?:[\r\n]|\Z))")
"""A data line up to the brace that it ends with."""

_OVERLAP: Final = 3
"""How much of what was searched before may belong to a boundary that is whole only now."""


_MOST: Final = ((b"[{", 100_000), (b":", 250_000), (b",", 1_500_000), (b"\r\n", 100_000))
"""How often each of these bytes may stand in a large event. To parse it takes some tens of milliseconds at most then, in
which everybody waits; without a bound eight megabytes of empty lists take more than a second. Long texts, and the ids of a
long prompt's tokens, stay below."""


class EventTooLarge(Exception):  # noqa: N818
    """An event grew past the limit without an end."""


class EventSplitter:
    """Cuts a byte stream into whole events, each with the blank line that ended it.

    An event whose last byte is a CR counts as whole at once: an LF that belongs to it stands before the next event
    then, where every reader skips it. Waiting for it would hold a stream with bare CRs back by one event.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._limit = limit_bytes

    @property
    def at_rest(self) -> bool:
        """Whether no begun event is kept."""
        return not self._rest

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completed.

        Raises:
            EventTooLarge: more than the limit was kept waiting for an end.
        """
        if not self._rest:
            events, end = _cut(chunk, 0)
            self._rest += chunk[end:]
        else:
            self._rest += chunk
            events, end = _cut(self._rest, max(0, self._searched - _OVERLAP))
            del self._rest[:end]
        self._searched = len(self._rest)
        if self._searched > self._limit:
            raise EventTooLarge(f"an event is longer than {self._limit} bytes")
        return events

    def end(self) -> bytes:
        """What stands after the last blank line when the stream has ended."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


def _cut(data: bytes | bytearray, search: int) -> tuple[list[bytes], int]:
    events, start = [], 0
    for match in _BOUNDARY.finditer(data, search):
        events.append(bytes(data[start : match.end()]))
        start = match.end()
    return events, start


def tangled(event: bytes) -> bool:
    """Whether a large event holds so many values or lines that to read it would hold up everybody."""
    return any(event.count(byte) > most for each, most in _MOST for byte in each)


def data_of(event: bytes) -> bytes | None:
    """The data of an event with its lines joined by LF, `None` if it has no data line (a comment, a bare `retry:`)."""
    if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.count(b"\n") == 2 and b"\r" not in event:
        return event[6:-2]
    lines = []
    for line in _LINE.split(event.removeprefix(_BYTE_ORDER_MARK)):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None


def event(data: bytes, name: str | None = None) -> bytes:
    """One event that carries `data`, which must be one line."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


def comment(text: bytes) -> bytes:
    """A comment line, which every reader skips; it keeps proxies from cutting an idle connection."""
    return b": " + text + b"\n\n"


def splice(event_bytes: bytes, member: bytes) -> bytes | None:
    """The event with one more member at the end of its JSON object; everything else byte for byte as it was.

    `None` for an event whose last data line does not end with a brace.
    """
    if b"}" not in event_bytes:  # an end marker
        return None
    start = max(event_bytes.rfind(b"\ndata:"), event_bytes.rfind(b"\rdata:")) + 1
    found = _OBJECT.match(event_bytes, start)
    if found is None:
        return None
    brace = found.end() - 1
    before = event_bytes[:brace]
    comma = b"" if before.rstrip().endswith(b"{") else b","
    return b"".join((before, comma, member, event_bytes[brace:]))
