"""Changing a model's name in requests and answers, byte by byte, for servers that call it something else.

Only for servers that already run (`--serve ID=NAME`), which may have more models than are lent; engines that this agent
launches have one, under the catalog's id. Nothing but the name changes: no number is reformatted, no key reordered.
"""

import re
from typing import Final

import orjson

SMALL_BYTES: Final = 64 * 1024
"""Up to this, a request is looked at at once; a larger one might hold up other jobs."""

_KEY_AND_NAME: Final = re.compile(
    rb'"(?<!\\")(?:[mM]|\\u00[46][dD])(?:[oO]|\\u00[46][fF])(?:[dD]|\\u00[46]4)(?:[eE]|\\u00[46]5)(?:[lL]|\\u00[46][cC])"'
    rb'\s*+:\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+")?',
    re.DOTALL,
)
"""A key that reads `model` in whatever case, and its value if that is a string. A quote behind a backslash begins none."""
_NO_MARKS: Final = bytes(set(range(256)) - set(b'"{}[]'))
_SPACE: Final = 8
"""Most white space that an answer may hold around the colon of its `model` member, in bytes."""


def rename_request(body: bytes, name: str) -> bytes | None:
    """The request with its top-level `model` set to `name`; `None` for one that a server could read in another way.

    Servers differ in which of two members they take, and some do not mind the case of letters (Go's JSON): whatever can be
    taken for it names this model. Without one, or with one that is no string, servers choose a model themselves. Some
    (Python's JSON) take UTF-16 as well, in which nothing here would be found, and which is never without zero bytes.
    """
    if b"\0" in body:
        return None
    said = orjson.dumps(name)
    if len(body) <= SMALL_BYTES and _says_only(said, body):
        return body
    pieces: list[bytes] = []
    depth, read, done = 0, 0, 0
    for found in _KEY_AND_NAME.finditer(body):
        depth += _opened(body[read : found.start()])
        read = found.end()
        if depth == 1:
            if found[1] is None:
                return None
            pieces += (body[done : found.start(1)], said)
            done = read
    return b"".join((*pieces, body[done:])) if pieces else None


def _says_only(name: bytes, body: bytes) -> bool:
    """Whether a body has this name already, and nothing else that could be read as `model`; most are known by a glance."""
    at = body.find(b'"model":' + name)
    if at < 0:
        at = body.find(b'"model": ' + name)
    if at < 0 or b"\\u" in body or body.lower().count(b'model"') != 1:
        return False
    if at == 1:
        return True
    rest = body[at:]
    return rest.count(b"}") == 1 and b"{" not in rest and b"[" not in rest and b"]" not in rest


def _opened(text: bytes) -> int:
    """How many more brackets it opens than it closes, those within its strings aside; no loop over what it holds."""
    marks = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    # Two quotes side by side change nothing for what follows them; of the rest, every second part is outside strings.
    outside = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    return outside.count(b"{") + outside.count(b"[") - outside.count(b"}") - outside.count(b"]")


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
