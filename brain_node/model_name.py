"""Changing a model's name in requests and answers, byte by byte, for servers that call it something else.

Only for servers that already run (`--serve ID=NAME`), which may have more models than are lent; engines that this agent
launches have one, under the catalog's id. Nothing but the name changes: no number is reformatted, no key reordered.
"""

import re
from typing import Final

import orjson

SMALL_BYTES: Final = 64 * 1024
"""Up to this, to look first whether there is anything to do costs less than to do it."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]', re.DOTALL)
_STRING_AFTER: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")', re.DOTALL)
_SPACE: Final = 8
"""Most white space that an answer may hold around the colon of its `model` member, in bytes."""


def rename_request(body: bytes, name: str) -> bytes:
    """The request with its top-level `model` set to `name`; unchanged when it has none (the engine will say so).

    Servers differ in which of two members they take, and some do not mind the case of letters (Go's JSON): whatever can be
    taken for it names this model.
    """
    if len(body) <= SMALL_BYTES and _names_only(body, orjson.dumps(name)):
        return body
    pieces: list[bytes] = []
    depth, key_next, done = 0, False, 0
    for token in _TOKEN.finditer(body):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
            key_next = depth == 1 and text == b"{"
        elif text in (b"}", b"]"):
            depth -= 1
        elif text == b",":
            key_next = depth == 1
        elif key_next and text != b":":
            key_next = False
            colon = body.find(b":", token.end()) if _is_model(text) else -1
            value = _STRING_AFTER.match(body, colon + 1) if colon >= 0 else None
            if value is not None:
                pieces += (body[done : value.start(1)], orjson.dumps(name))
                done = value.end(1)
    return b"".join((*pieces, body[done:]))


def _names_only(body: bytes, name: bytes) -> bool:
    """Whether a body says this name, and has nothing else that could be read as `model`; most have not."""
    said = b'"model":' + name in body or b'"model": ' + name in body
    return said and body.lower().count(b'model"') == 1 and b"\\u" not in body


def _is_model(key: bytes) -> bool:
    if b"\\" not in key:
        return key.lower() == b'"model"'
    try:
        return str(orjson.loads(key)).lower() == "model"
    except ValueError:
        return False


class AnswerRename:
    """Puts the asked name back into an answer that arrives in pieces.

    A `"model":"NAME"` with bare quotes can only be a member: inside a JSON string the quotes would be escaped.
    """

    def __init__(self, served_name: str, name: str) -> None:
        served = orjson.dumps(served_name)
        self._pattern = re.compile(rb'"model"(\s{0,4}:\s{0,4})' + re.escape(served))
        self._replacement = b'"model"\\1' + orjson.dumps(name).replace(b"\\", b"\\\\")
        self._keep = len(b'"model":') + _SPACE + len(served)
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can go out now; an event that ends with its newline goes out whole, at once."""
        text = self._pattern.sub(self._replacement, self._held + chunk)
        cut = len(text) if text.endswith(b"\n") else max(0, len(text) - self._keep)
        self._held = text[cut:]
        return text[:cut]

    def end(self) -> bytes:
        """What was still held back."""
        held, self._held = self._held, b""
        return held
