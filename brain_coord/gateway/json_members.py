"""The top-level members of a JSON object as they stand in its bytes, so that one can go and the rest stay untouched.

Parsing and writing again would change what it should not: `1e-7`, `2**70`, `1.0`, the order of keys, escapes. It would
also take its time: to find the members of 30 MB takes a few milliseconds, to parse them a tenth of a second in which
nothing else runs.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import orjson

MOST: Final = 10_000
"""Members that an object may have here; a request of any API has a few dozen."""

MOST_MARKS: Final = 1_000_000
"""Strings and brackets that it may have: each takes a step in Python, and 30 MB of nothing else took ten seconds."""

_ESCAPES: Final = 16
"""So many escaped quotes in a string, and the rest of it is searched by a pattern: by the step it costs less, by the byte more."""

_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

_HERE: Final = re.compile(rb'["{}\[\],]')
_INSIDE: Final = re.compile(rb'["{}\[\]]')
_BACKSLASH: Final = 0x5C
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
    found: list[Member] = []
    at = _begin(body)
    key: tuple[str, int, int] | None = None
    depth, marks = 1, 0
    while depth:
        marks += 1
        if marks > MOST_MARKS:
            raise ValueError(f"the object has more than {MOST_MARKS} strings and brackets")
        token = (_HERE if depth == 1 else _INSIDE).search(body, at)
        if token is None:
            raise ValueError("the object has no end")
        mark, at = token.group(), token.end()
        if mark == b'"':
            at = _string_end(body, at)
            if depth == 1 and key is None:
                key = orjson.loads(body[token.start() : at]), token.start(), at
        elif mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        if key is not None and (depth == 0 or mark == b","):
            found.append(_member(body, *key, token.start()))
            key = None
            if len(found) > MOST:
                raise ValueError(f"the object has more than {MOST} members")
    if body[at:].strip():
        raise ValueError("something stands behind the object")
    return found


def _begin(body: bytes) -> int:
    start = len(body) - len(body.lstrip())
    if body[start : start + 1] != b"{":
        raise ValueError("not an object")
    return start + 1


def _member(body: bytes, name: str, start: int, key_end: int, end: int) -> Member:
    value = body.index(b":", key_end) + 1
    while value < end and body[value] in _SPACE:
        value += 1
    while end > value and body[end - 1] in _SPACE:
        end -= 1
    return Member(name, start, value, end)


def _string_end(body: bytes, at: int) -> int:
    """Where the string ends whose opening quote stands before `at`. Searching for quotes costs no time per byte."""
    for _ in range(_ESCAPES):
        quote = body.index(b'"', at)
        before = quote - 1
        while body[before] == _BACKSLASH:
            before -= 1
        if (quote - before) % 2:
            return quote + 1
        at = quote + 1
    rest = _REST_OF_STRING.match(body, at)
    if rest is None:
        raise ValueError("a string has no end")
    return rest.end()


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
    end = body.rindex(b"}")
    last = end - 1
    while body[last] in _SPACE:
        last -= 1
    comma = b"" if body[last] == _BRACE else b","
    return b"".join((memoryview(body)[:end], comma, member, b"}"))
