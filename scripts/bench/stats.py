"""From samples to statements: means, spreads, differences, and whether a difference means anything. Pure.

The method: everything is measured against a direct baseline in the same run; what a router adds is the difference of
means; each figure comes from at least three repeats, and the spread is the largest minus the smallest of them. A difference
that is not larger than the spreads it stands on is inconclusive, and is called so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Estimate:
    """One figure over all repeats."""

    mean: float
    spread: float
    repeats: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate | None":
        """`None` without values."""
        return cls(fmean(values), max(values) - min(values), len(values)) if values else None

    def __sub__(self, other: "Estimate") -> "Estimate":
        """A difference of means; spreads add up."""
        return Estimate(self.mean - other.mean, self.spread + other.spread, min(self.repeats, other.repeats))


@dataclass(frozen=True, slots=True)
class Ratio:
    """One system's figure by another's."""

    value: float
    conclusive: bool


def ratio(ours: Estimate | None, theirs: Estimate | None) -> Ratio | None:
    """`None` where either figure is missing or the divisor is not above 0."""
    if ours is None or theirs is None or theirs.mean <= 0:
        return None
    apart = abs(ours.mean - theirs.mean) > max(ours.spread, theirs.spread)
    return Ratio(ours.mean / theirs.mean, apart)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` of the values lie, `None` without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
