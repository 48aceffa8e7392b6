"""How a product is cut into units of work. Pure."""

from dataclasses import dataclass
from math import ceil, isqrt
from typing import Final

UNIT_OPERATIONS: Final = (1 << 24, 1 << 31)
"""Least and most operations of a unit: one must be worth its dispatch, and end soon enough to be given to another."""

RESULT_WORDS: Final = 1 << 18
OPERAND_WORDS: Final = 1 << 21
UNITS_PER_TAB: Final = 4
"""So many units for each tab that is there, so that a fast one can take more of them."""


@dataclass(frozen=True, slots=True)
class Block:
    """One unit: a rectangle of the result."""

    row: int
    rows: int
    column: int
    columns: int

    def operations(self, inner: int) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.columns * inner


def cut(rows: int, inner: int, columns: int, tabs: int) -> list[Block]:
    """Rectangles that cover the result once, about equally large, in row order.

    Args:
        rows: of the result.
        inner: terms of each of its numbers.
        columns: of the result.
        tabs: how many could share the work.
    """
    least, most = UNIT_OPERATIONS
    wanted = min(most, max(least, 2 * rows * inner * columns // (UNITS_PER_TAB * max(1, tabs))))
    words = max(1, min(RESULT_WORDS, wanted // (2 * inner)))
    wide = min(columns, max(isqrt(words), words // rows, 1), max(1, OPERAND_WORDS // inner))
    high = min(rows, max(1, words // wide), max(1, OPERAND_WORDS // inner))
    return [
        Block(row, deep, column, broad) for row, deep in _even(rows, high) for column, broad in _even(columns, wide)
    ]


def _even(length: int, most: int) -> list[tuple[int, int]]:
    """Starts and lengths of parts of at most `most`, as even as whole numbers allow."""
    step = ceil(length / ceil(length / most))
    return [(start, min(step, length - start)) for start in range(0, length, step)]
