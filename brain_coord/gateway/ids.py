"""Ids that nobody can guess, from the system's randomness, which is asked once for many of them."""

import os
from typing import Final

ID_BYTES: Final = 12
_AT_ONCE: Final = 256
_CLOCK_DIGITS: Final = 9
_CLOCK_HZ: Final = 16
_CLOCK_ROUND: Final = 16**_CLOCK_DIGITS

_kept: list[str] = []


def random_id() -> str:
    """24 hexadecimal digits; each is given out once."""
    if not _kept:
        _kept.extend(os.urandom(ID_BYTES * _AT_ONCE).hex(" ", ID_BYTES).split())
    return _kept.pop()


def receipt_id_at(time_s: float) -> str:
    """`r-` and 24 hexadecimal digits for a receipt of the wall time `time_s`: nine of the clock, fifteen (60 bits) random.

    Ids of one moment stand together in the store's index; wholly random ones made each receipt change a page of its own.
    """
    return f"r-{int(time_s * _CLOCK_HZ) % _CLOCK_ROUND:09x}{random_id()[_CLOCK_DIGITS:]}"
