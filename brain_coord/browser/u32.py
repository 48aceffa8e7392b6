"""Matrices over the integers mod 2^32: operands made from a seed, and exact products. Pure.

A seeded operand is a function of its place alone, so a tab can make any part of it and a seed of 8 bytes stands for
megabytes. `web/static/lend/matmul.wgsl` has the same function; both must change together.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]

SIDES: Final = {"a": 0x9E3779B9, "b": 0x7F4A7C15}
"""What tells the two operands of one seed apart."""

_LOW: Final = np.uint32(0xFFFF)
_HALF: Final = np.uint32(16)
_EXACT_INNER: Final = 1 << 20
"""So many products of two 16-bit numbers still add up exactly in a double."""


def seeded(seed: int, side: str, rows: range, columns: range, width: int) -> U32:
    """Part of a seeded operand.

    Args:
        seed: 64 bits.
        side: `a` or `b`.
        rows: of the part.
        columns: of the part.
        width: columns of the whole operand.
    """
    low, high = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32 & 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        place = np.arange(rows.start, rows.stop, dtype=np.uint32)[:, None] * np.uint32(width)
        x = place + np.arange(columns.start, columns.stop, dtype=np.uint32)[None, :]
        x = _mix(x * np.uint32(SIDES[side]) + low)
        return _mix(x ^ (high + np.uint32(SIDES[side])))


def _mix(x: U32) -> U32:
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def product(a: U32, b: U32) -> U32:
    """`a · b` mod 2^32, exactly.

    NumPy multiplies integers one by one and doubles with vector units, so the numbers are cut into halves of 16 bits.
    The product of two high halves is a multiple of 2^32 and falls away.
    """
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint32)
    for start in range(0, a.shape[1], _EXACT_INNER):
        left, right = a[:, start : start + _EXACT_INNER], b[start : start + _EXACT_INNER]
        a_low, a_high = (left & _LOW).astype(np.float64), (left >> _HALF).astype(np.float64)
        b_low, b_high = (right & _LOW).astype(np.float64), (right >> _HALF).astype(np.float64)
        with np.errstate(over="ignore"):
            total += _mod32(a_low @ b_low) + (_mod32(a_low @ b_high + a_high @ b_low) << _HALF)
    return total


def _mod32(exact: NDArray[np.float64]) -> U32:
    return exact.astype(np.uint64).astype(np.uint32)
