"""The top-level members of a JSON object as they stand in its bytes, so that one can go and the rest stay untouched.

Parsing and writing again would change what it should not: `1e-7`, `2**70`, `1.0`, the order of keys, escapes.
Only for bytes that a parser has already accepted as an object.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

import orjson

_HERE: Final = re.compile(rb'["{}\[\],]')
_INSIDE: Final = re.compile(rb'["{}\[\]]')
_BACKSLASH: Final = 0x5C


def members(body: bytes) -> list[tuple[str, bytes]]:
    """Name and bytes (`"name": value`, without white space around it) of every top-level member, in order."""
    found: list[tuple[str, bytes]] = []
    at = start = body.index(b"{") + 1
    name: str | None = None
    depth = 1
    while depth:
        token = (_HERE if depth == 1 else _INSIDE).search(body, at)
        assert token is not None, "not a JSON object"
        mark, at = token.group(), token.end()
        if mark == b'"':
            at = _string_end(body, at)
            if depth == 1 and name is None:
                name = orjson.loads(body[token.start() : at])
        elif mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        if name is not None and (depth == 0 or mark == b","):
            found.append((name, body[start : token.start()].strip()))
            start, name = at, None
    return found


def _string_end(body: bytes, at: int) -> int:
    """Where the string ends whose opening quote stands before `at`. Searching for quotes costs no time per byte."""
    while True:
        quote = body.index(b'"', at)
        before = quote - 1
        while body[before] == _BACKSLASH:
            before -= 1
        if (quote - before) % 2:
            return quote + 1
        at = quote + 1


def rewrite(body: bytes, *, without: Collection[str] = (), add: Iterable[bytes] = ()) -> bytes:
    """The object without some members (every occurrence of each) and with others at its end.

    Args:
        body: a JSON object.
        without: names to leave out.
        add: members as bytes, `"name":value`.
    """
    kept = [text for name, text in members(body) if name not in without]
    return b"{" + b",".join([*kept, *add]) + b"}"


def append(body: bytes, member: bytes) -> bytes:
    """The object with one more member at its end; all others, byte for byte, as they were."""
    head = body.rstrip()[:-1].rstrip()
    return head + (b"" if head.endswith(b"{") else b",") + member + b"}"
