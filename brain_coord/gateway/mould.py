"""Events of a stream that differ in nothing but their text: a burst of them is judged at once, by comparing bytes.

Nearly every event of a stream is the one before it with another piece of text. Once such an event was read as JSON, what
stands before its text and behind it is known; whatever has the same bytes around a JSON string has the same meaning.
"""

import re
from typing import Final, NamedTuple

import orjson

from brain_coord.gateway.dialects.base import text_length

_NOT_PLAIN: Final = re.compile(rb"[\\\x00-\x1f\x80-\xff]")
"""What has to be read as JSON to know how long the text is, or whether it is one."""


_ODD: Final = re.compile(rb'["\\\x00-\x1f\x80-\xff]')
"""The same, and the quote that ends a text."""


Run = tuple[int, int, int, int]
"""Events that stand one behind the other: where they end, how many, how much text they hold, and the first of them."""


class Mould(NamedTuple):
    """One form of an event: its bytes before the text, with the opening quote, and behind it, with the blank line."""

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, event: bytes, before_text: re.Pattern[bytes], text_bytes: int) -> "Mould | None":
        """The form that an event seems to have which was read as output.

        Args:
            event: with the blank line that ends it.
            before_text: where its only text should stand.
            text_bytes: how much text was found in it. `None` comes back where there is not so much at that place.
        """
        places = list(before_text.finditer(event))
        if len(places) != 1 or not event.endswith(b"\n\n"):
            return None
        start = places[0].end()
        end = event.index(b'"', start)
        if end - start != text_bytes or _NOT_PLAIN.search(event, start, end):
            return None
        return cls(event[:start], event[end:])

    def with_text(self, text: bytes) -> bytes:
        """An event of this form."""
        return b"".join((self.head, text, self.tail))

    def alone(self, data: bytes) -> int:
        """How much text `data` holds, if it is one event of this form with plain text; else 0."""
        head, tail = self
        if not data.startswith(head) or not data.endswith(tail):
            return 0
        text = data[len(head) : -len(tail)]
        return 0 if _ODD.search(text) else len(text)

    def run(self, data: bytes, at: int) -> Run | None:
        """The events of this form from `at` on, up to the last one in `data`; `None` where anything else is among them."""
        head, tail = self
        end = data.rfind(tail, at)
        if end < 0 or not data.startswith(head, at):
            return None
        texts = data[at + len(head) : end].split(tail + head)
        joined = b"".join(texts)
        if b'"' in joined or b"" in texts:  # an event without text, or another than these
            return None
        if not _NOT_PLAIN.search(joined):
            return end + len(tail), len(texts), len(joined), len(texts[0])
        try:
            values = orjson.loads(b'["%b"]' % b'","'.join(texts))
        except orjson.JSONDecodeError:
            return None
        if len(values) != len(texts):
            return None
        sizes = [text_length(value) for value in values]
        return end + len(tail), len(texts), sum(sizes), sizes[0]
