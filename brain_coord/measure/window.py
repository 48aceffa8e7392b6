"""Median over recent samples of one quantity: robust against stalls and against the odd lie, with its count and its age."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

SAMPLES: Final = 50
"""How many recent samples count."""

MAX_AGE_S: Final = 24 * 3600.0
"""A sample older than this no longer counts: one slow day must not follow a node for ever."""


@dataclass(slots=True)
class MedianWindow:
    """The last samples of one quantity; times in seconds of the monotonic clock."""

    _samples: deque[tuple[float, float]] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    """The samples that count, the least first."""

    @classmethod
    def of(cls, values: Sequence[float], now: float) -> "MedianWindow":
        """The window with samples that another coordinator took, oldest first."""
        kept = values[-SAMPLES:]
        return cls(deque((now, value) for value in kept), sorted(kept))

    @property
    def value(self) -> float | None:
        """The median, `None` before the first sample."""
        return middle(self.ordered) if self.ordered else None

    def reached(self, count: int) -> float | None:
        """What so many of the samples reached; `None` with fewer."""
        return self.ordered[-count] if len(self.ordered) >= count else None

    def add(self, value: float, now: float) -> None:
        """Add one sample."""
        samples = self._samples
        samples.append((now, value))
        insort(self.ordered, value)
        if len(samples) > SAMPLES:
            self._drop()
        if samples[0][0] < now - MAX_AGE_S:
            self.expire(now)

    def at_most(self, value: float, now: float) -> bool:
        """Add an upper bound. It teaches something only where it contradicts the median; returns whether it did."""
        current = self.value
        if current is None or value >= current:
            return False
        self.add(value, now)
        return True

    def expire(self, now: float) -> bool:
        """Forget samples that are too old; returns whether there were any."""
        expired = False
        while self._samples and self._samples[0][0] < now - MAX_AGE_S:
            self._drop()
            expired = True
        return expired

    def _drop(self) -> None:
        _, value = self._samples.popleft()
        del self.ordered[bisect_left(self.ordered, value)]

    @property
    def values(self) -> list[float]:
        """The samples that count, oldest first."""
        return [value for _, value in self._samples]

    @property
    def samples(self) -> int:
        """How many samples the median stands on."""
        return len(self._samples)


def middle(ordered: Sequence[float]) -> float:
    """The median of values that stand in order; at least one."""
    at, odd = divmod(len(ordered), 2)
    return ordered[at] if odd else (ordered[at - 1] + ordered[at]) / 2
