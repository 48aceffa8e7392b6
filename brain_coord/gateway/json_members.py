"""The top-level members of a JSON object as they stand in its bytes, so that one can go and the rest stay untouched.

Parsing and writing again would change what it should not: `1e-7`, `2**70`, `1.0`, the order of keys, escapes. It would
also take its time: to find the members of 30 MB takes a few milliseconds, to parse them a tenth of a second in which
nothing else runs.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from brain_coord.gateway.json_scan import Scan

MOST: Final = 10_000
"""Members that an object may have here; a request of any API has a few dozen."""

_QUOTE: Final = b'"'
_BRACE: Final = 0x7B
_SPACE: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Member:
    """One `"name": value`, by where it stands. White space around it is not part of it."""

    name: str
    start: int
    value: int
    end: int


def members(body: bytes) -> list[Member]:
    """Every top-level member of an object, in order. What stands inside their values is not checked.

    Raises:
        ValueError: brackets and quotes do not make an object, or it has too many members.
    """
    scan = Scan(body)
    found, end = members_at(scan, scan.past_space(0))
    if scan.past_space(end) < len(body):
        raise ValueError("something stands behind the object")
    return found


def members_at(scan: Scan, at: int) -> tuple[list[Member], int]:
    """Every member of the object that begins at `at`, and where it ends. Raises `ValueError` as `members` does."""
    body, found = scan.text, list[Member]()
    if body[at : at + 1] != b"{":
        raise ValueError("not an object")
    at = scan.past_space(at + 1)
    if body[at : at + 1] == b"}":
        return found, at + 1
    while True:
        if body[at : at + 1] != _QUOTE:
            raise ValueError("a name is missing")
        name_end = scan.string_end(at + 1)
        colon = scan.past_space(name_end)
        if body[colon : colon + 1] != b":":
            raise ValueError("a colon is missing")
        value = scan.past_space(colon + 1)
        end = scan.value_end(value)
        found.append(Member(orjson.loads(body[at:name_end]), at, value, end))
        if len(found) > MOST:
            raise ValueError(f"the object has more than {MOST} members")
        at = scan.past_space(end)
        behind = body[at : at + 1]
        if behind == b"}":
            return found, at + 1
        if behind != b",":
            raise ValueError("a comma is missing" if behind else "the object has no end")
        at = scan.past_space(at + 1)


def rewrite(body: bytes, *, without: Collection[str] = (), add: Iterable[bytes] = ()) -> bytes:
    """The object without some members (every occurrence of each) and with others at its end.

    Args:
        body: a JSON object.
        without: names to leave out.
        add: members as bytes, `"name":value`.
    """
    view = memoryview(body)
    pieces: list[bytes | memoryview] = []
    for each in members(body):
        if each.name not in without:
            pieces += (b",", view[each.start : each.end])
    for member in add:
        pieces += (b",", member)
    return b"".join((b"{", *pieces[1:], b"}"))


def with_only(body: bytes, name: str, text: str) -> bytes:
    """The object with one member that any reader may take for the one of this (lower-case) name, and it holds `text`.

    Of two members one reader takes the first and another the last, and some do not mind the case of letters.
    """
    alike = [each for each in members(body) if each.name.lower() == name]
    if len(alike) == 1 and alike[0].name == name and body[alike[0].value : alike[0].end] == orjson.dumps(text):
        return body
    return rewrite(body, without={each.name for each in alike}, add=(b'"%b":%b' % (name.encode(), orjson.dumps(text)),))


def append(body: bytes, member: bytes) -> bytes:
    """The object with one more member at its end; all others, byte for byte, as they were."""
    return b"".join(with_end(body, member))


def with_end(body: bytes, member: bytes) -> tuple[memoryview, bytes]:
    """The same in two pieces, of which only the second one is new."""
    end = body.rindex(b"}")
    last = end - 1
    while body[last] in _SPACE:
        last -= 1
    comma = b"" if body[last] == _BRACE else b","
    return memoryview(body)[:end], b"%b%b}" % (comma, member)
