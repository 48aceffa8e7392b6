"""Whether a claimed product is right: Freivalds' check over the integers mod 2^32, plus rows recomputed exactly. Pure.

Over a field one round misses a wrong product with probability 1/q. The integers mod 2^32 are no field: where the error
is 2^31 in one place, its product with a random number is 0 whenever that number is even, so a round may miss it with
probability 1/2 and no more (the error's row times a random vector takes each of its possible values equally often, and
has at least two). So 24 rounds miss a wrong product with probability at most 2^-24, whoever chose the error; the random
numbers are drawn only after the answer has come.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from brain_coord.browser.u32 import U32, product

ROUNDS: Final = 24
"""More than the 20 that the promised bound of 2^-20 needs at 1/2 a round."""

SPOT_ROWS: Final = 2


@dataclass(frozen=True, slots=True)
class CheckMethod:
    """How products were checked, as receipts name it."""

    rounds: int = ROUNDS
    spot_rows: int = SPOT_ROWS

    def to_dict(self) -> dict[str, Any]:
        """As a receipt shows it."""
        return {
            "name": "freivalds over Z/2^32 with exact spot rows",
            "rounds": self.rounds,
            "miss_probability_at_most": f"2^-{self.rounds}",
            "spot_rows": self.spot_rows,
        }


METHOD: Final = CheckMethod()


def fault_in(a: U32, b: U32, c: U32, rng: np.random.Generator, method: CheckMethod = METHOD) -> str | None:
    """Why `c` is not `a · b` mod 2^32, or `None` when it stood the check.

    Args:
        a: rows by inner.
        b: inner by columns.
        c: what was claimed, rows by columns.
        rng: seeded with a secret that nobody could know before `c` had come.
        method: how thorough to be.
    """
    rows, columns = c.shape
    vectors = rng.integers(0, 1 << 32, size=(columns, method.rounds), dtype=np.uint32)
    if not np.array_equal(product(a, product(b, vectors)), product(c, vectors)):
        return "the product is wrong"
    spots = rng.choice(rows, size=min(rows, method.spot_rows), replace=False)
    if not np.array_equal(product(a[spots], b), c[spots]):
        return "a row of the product is wrong"
    return None
