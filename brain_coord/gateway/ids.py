"""Ids that nobody can guess, from the system's randomness, which is asked once for many of them."""

import os
from typing import Final

ID_BYTES: Final = 12
_AT_ONCE: Final = 256

_kept: list[str] = []


def random_id() -> str:
    """24 hexadecimal digits; each is given out once."""
    if not _kept:
        digits = os.urandom(ID_BYTES * _AT_ONCE).hex()
        _kept.extend(digits[at : at + 2 * ID_BYTES] for at in range(0, len(digits), 2 * ID_BYTES))
    return _kept.pop()
