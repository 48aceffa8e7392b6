"""Whether two greedy answers to one prompt can come from the same model. Pure; the rule is published in ROUTING.md.

The same model on other hardware rounds differently, and sooner or later one near-tie falls the other way; from there on the
texts differ, but they began alike. Another model leaves the common path within a few words. So what counts is how far two
answers run together from their first word; where they part early they may still agree by using nearly the same words.
"""

import re
from collections import Counter
from typing import Final

COMPARED_WORDS: Final = 64
"""Only so many words from the start are looked at."""

TOGETHER_WORDS: Final = 8
"""Answers that run together for so many words agree."""

TOGETHER_SHARE: Final = 0.5
"""So do those that run together for this share of the longer one (short answers)."""

SAME_WORDS: Final = 0.75
"""So do those with this share of words in common, wherever they stand: 2 · common ÷ (all words of both)."""

_WORD: Final = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Words and signs, without regard to spaces and capitals."""
    return _WORD.findall(text.casefold())[:COMPARED_WORDS]


def agree(one: str, other: str) -> bool:
    """Whether two answers agree."""
    first, second = words_of(one), words_of(other)
    if not first or not second:
        return not first and not second
    together = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        together += 1
    if together >= TOGETHER_WORDS or together >= TOGETHER_SHARE * max(len(first), len(second)):
        return True
    common = sum((Counter(first) & Counter(second)).values())
    return 2 * common >= SAME_WORDS * (len(first) + len(second))
