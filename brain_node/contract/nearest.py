"""What somebody may have meant who typed a name that is not there. Pure."""

import difflib
from collections.abc import Iterable
from typing import Final

SUGGESTED: Final = 3


def nearest(typed: str, known: Iterable[str]) -> list[str]:
    """Up to three of the known names, best first: those that begin as typed, else those that look like it."""
    names = list(dict.fromkeys(known))
    begun = sorted(name for name in names if typed and name.startswith(typed))
    return begun[:SUGGESTED] or difflib.get_close_matches(typed, names, SUGGESTED)


def did_you_mean(typed: str, known: Iterable[str], otherwise: str) -> str:
    """`Did you mean A or B?`, or what to do instead when nothing comes near."""
    near = nearest(typed, known)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise
