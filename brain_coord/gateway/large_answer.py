"""What the gateway reads of a large whole answer: its short members, and how much text it holds.

Parsed at once, tens of megabytes would hold up everybody for as long as that takes, in whichever thread, and a node could
make it seconds. So the answer is read in pieces, of which hardly anything is kept. For a thread of its own.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from brain_coord.gateway.dialects import Dialect
from brain_coord.gateway.dialects.base import lenient_json
from brain_coord.gateway.json_members import members, members_at
from brain_coord.gateway.json_scan import Scan

PIECE_BYTES: Final = 64 * 1024
"""What is parsed at once, but for a single text that is longer."""

KEPT_BYTES: Final = 8 * 1024 * 1024
"""What is kept of one element, such as a choice, apart from long texts; what it has beyond that counts as no text."""

DEPTH: Final = 8
"""Large values in large values that are read: texts stand in the third, the fourth at most."""

_NO_TEXT: Final = frozenset({"logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids", "embedding"})
"""Members that may be large and hold no text, or none whose length is asked for."""

_STAND_IN: Final = [None]
_MARK: Final = re.compile(rb'["{}\[\]]')


def read_large(body: bytes, dialect: Dialect) -> tuple[dict[str, Any], int]:
    """The members of an answer of this form, long ones with a stand-in for their value, and its bytes of text.

    Raises:
        ValueError: it is not a JSON object, or would take too long to read.
    """
    scan, short, text_bytes = Scan(body), dict[str, Any](), 0
    for each in {each.name: each for each in members(body)}.values():  # as everywhere, the last of several counts
        if each.end - each.value <= PIECE_BYTES:
            short[each.name] = _loads(body[each.value : each.end])
            continue
        short[each.name] = _STAND_IN
        # Every form has its texts in one list, and counts them element by element.
        if body.startswith(b"[", each.value):
            for some in _elements(scan, each.value, None):
                text_bytes += dialect.text_bytes_of({each.name: some})
    return short, text_bytes + dialect.text_bytes_of(short)


class _Room:
    """How much more may be kept of one element."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.left_bytes = KEPT_BYTES

    def takes(self, size_bytes: int) -> bool:
        """Whether so much more has room."""
        self.left_bytes -= size_bytes
        return self.left_bytes >= 0


def _elements(scan: Scan, at: int, room: _Room | None) -> Iterator[list[Any]]:
    """The elements of the list that begins at `at`, a piece at a time, with the large ones as far as they have room."""
    text = scan.text
    start = at = at + 1
    while True:
        at = scan.run_end(at)
        if at - start > PIECE_BYTES and (comma := _comma_before(text, start, at)) is not None:
            yield _piece(text[start:comma], room)
            start = comma + 1
        mark = text[at : at + 1]
        if mark == b"]":
            yield _piece(text[start:at], room)
            return
        if mark in (b"", b"}"):
            raise ValueError("the list has no end")
        if mark in b'"{[':
            end = scan.value_end(at)
            if end - at > PIECE_BYTES:
                yield _piece(text[start:at].rstrip(b", \t\r\n"), room)
                yield [_value(scan, at, end, room or _Room())]
                start = end = scan.past_space(end)
                if text.startswith(b",", end):
                    start = end = end + 1
            at = end


def _comma_before(text: bytes, start: int, at: int) -> int | None:
    """The last comma between two elements of a list that has been read up to `at`."""
    if text.startswith(b",", at):
        return at
    comma = text.rfind(b",", start, at)
    return None if comma < 0 or _MARK.search(text, comma, at) else comma


def _piece(text: bytes, room: _Room | None) -> list[Any]:
    elements: list[Any] = _loads(b"[%b]" % text) if room is None or room.takes(len(text)) else []
    return elements


def _value(scan: Scan, at: int, end: int, room: _Room) -> Any:
    """A value without what it has no room for."""
    text = scan.text
    if end - at <= PIECE_BYTES:
        return _loads(text[at:end]) if room.takes(end - at) else None
    if text.startswith(b'"', at):
        return _loads(text[at:end])
    if room.depth >= DEPTH or not text.startswith((b"[", b"{"), at):  # the latter would be a number
        return None
    room.depth += 1
    try:
        if text.startswith(b"[", at):
            return [each for some in _elements(scan, at, room) for each in some]
        return {
            each.name: _STAND_IN
            if each.name in _NO_TEXT and each.end - each.value > PIECE_BYTES
            else _value(scan, each.value, each.end, room)
            for each in members_at(scan, at)[0]
        }
    finally:
        room.depth -= 1


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return lenient_json(text)
