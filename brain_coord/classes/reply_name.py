"""Put the name that a client asked for back into an upstream's answer; nothing else of it changes.

A model has one name here: in the list, in the request and in the answer. `"model":"NAME"` with bare quotes can only be a
member of the JSON, because inside a string its quotes would be escaped, so bytes can be replaced without parsing them.
"""

import re
from typing import Final

import orjson

_BLANKS: Final = 4
"""Most white space on each side of the colon."""


class ReplyName:
    """Renames in an answer that arrives in pieces."""

    def __init__(self, served: str, asked: str) -> None:
        quoted = orjson.dumps(served)
        self._member = re.compile(rb'("model"\s{0,%d}:\s{0,%d})' % (_BLANKS, _BLANKS) + re.escape(quoted))
        self._asked = orjson.dumps(asked)
        self._longest = len(b'"model":') + 2 * _BLANKS + len(quoted)
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on now. A piece that ends with a line goes out whole, as events do."""
        text = self._member.sub(lambda found: found.group(1) + self._asked, self._held + piece)
        if text.endswith(b"\n"):
            self._held = b""
            return text
        at = max(0, len(text) - self._longest)
        self._held = text[at:]
        return text[:at]

    def end(self) -> bytes:
        """What was kept because a name might have begun in it."""
        held, self._held = self._held, b""
        return held
