"""Where the values of a JSON text end, found by their brackets and quotes; what stands inside them is not checked.

Other threads run on meanwhile: each step is over in a few milliseconds, however large the text is.
"""

import re
from typing import Final

MOST_STEPS: Final = 1_000_000
"""Steps that one text may take, so that none of nothing but brackets keeps a processor for long."""

_ESCAPES: Final = 16
"""So many escaped quotes in a string, and the rest of it is searched by a pattern: by the step it costs less, by the byte more."""

_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_SCALAR: Final = re.compile(rb'[^"{}\[\],: \t\r\n]++')

_SHORT: Final = rb'"[^"\\]{0,128}+(?:\\.[^"\\]{0,128}+){0,8}+"'
_FLAT: Final = rb'[{\[](?:[^"{}\[\]]{1,64}+|%b){0,32}+[}\]]' % _SHORT
_DEEP: Final = rb'[{\[](?:[^"{}\[\]]{1,64}+|%b|%b){0,32}+[}\]]' % (_SHORT, _FLAT)
_SMALL: Final = re.compile(_DEEP, re.DOTALL)
"""A small list or object with no more than one level of others in it."""
_RUN: Final = re.compile(rb'(?:[^"{}\[\]]{1,65536}+|%b|%b){1,32}+' % (_SHORT, _DEEP), re.DOTALL)
"""Whole values that are small, with what stands between them."""

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_OPENS: Final = b"{["
_CLOSES: Final = b"}]"


class Scan:
    """One text, and the steps that were taken in it."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._steps = 0

    def past_space(self, at: int) -> int:
        """Where the white space at `at` ends."""
        found = _SPACE.match(self.text, at)
        return at if found is None else found.end()

    def run_end(self, at: int) -> int:
        """Where the small values that stand one behind the other at `at` end; `at` if the first is large, or none is left."""
        self._step()
        found = _RUN.match(self.text, at)
        return at if found is None else found.end()

    def value_end(self, at: int) -> int:
        """Where the value that begins at `at` ends.

        Raises:
            ValueError: there is none, it has no end, or the text takes too many steps.
        """
        self._step()
        text = self.text
        first = text[at] if at < len(text) else 0
        if first == _QUOTE:
            return self.string_end(at + 1)
        if first not in _OPENS:
            found = _SCALAR.match(text, at)
            if found is None:
                raise ValueError("a value is missing")
            return found.end()
        if (found := _SMALL.match(text, at)) is not None:
            return found.end()
        depth = 0
        while at < len(text):
            mark = text[at]
            if mark == _QUOTE:
                at = self.string_end(at + 1)
            elif mark in _OPENS:
                depth, at = depth + 1, at + 1
            elif mark in _CLOSES:
                depth, at = depth - 1, at + 1
                if not depth:
                    return at
            at = self.run_end(at)
        raise ValueError("the object has no end")

    def string_end(self, at: int) -> int:
        """Where the string ends whose opening quote stands before `at`. Searching for quotes costs no time per byte."""
        text = self.text
        for _ in range(_ESCAPES):
            quote = text.find(b'"', at)
            if quote < 0:
                raise ValueError("a string has no end")
            before = quote - 1
            while text[before] == _BACKSLASH:
                before -= 1
            if (quote - before) % 2:
                return quote + 1
            at = quote + 1
        rest = _REST_OF_STRING.match(text, at)
        if rest is None:
            raise ValueError("a string has no end")
        return rest.end()

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise ValueError(f"the object takes more than {MOST_STEPS} steps to read")
