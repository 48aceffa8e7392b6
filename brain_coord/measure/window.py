"""Median over recent samples of one quantity: robust against stalls and against the odd lie, with its count and its age."""

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

    _values: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _taken: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """When each of them was added."""
    _ordered: list[float] | None = None
    """Sorted when somebody asks: answers come far more often than anybody wants to know of first outputs."""

    @classmethod
    def of(cls, values: Sequence[float], now: float) -> "MedianWindow":
        """The window with samples that another coordinator took, oldest first."""
        window = cls()
        for value in values:
            window.add(value, now)
        return window

    @property
    def ordered(self) -> Sequence[float]:
        """The samples that count, the least first."""
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = sorted(self._values)
        return ordered

    @property
    def value(self) -> float | None:
        """The median, `None` before the first sample."""
        return middle(self.ordered) if self._values else None

    def reached(self, count: int) -> float | None:
        """What so many of the samples reached; `None` with fewer."""
        return self.ordered[-count] if len(self._values) >= count else None

    def add(self, value: float, now: float) -> None:
        """Add one sample."""
        self._values.append(value)
        self._taken.append(now)
        self._ordered = None
        if self._taken[0] < now - MAX_AGE_S:
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
        while self._taken and self._taken[0] < now - MAX_AGE_S:
            self._taken.popleft()
            self._values.popleft()
            self._ordered = None
            expired = True
        return expired

    @property
    def values(self) -> list[float]:
        """The samples that count, oldest first."""
        return list(self._values)

    @property
    def samples(self) -> int:
        """How many samples the median stands on."""
        return len(self._values)


def middle(ordered: Sequence[float]) -> float:
    """The median of values that stand in order; at least one."""
    at, odd = divmod(len(ordered), 2)
    return ordered[at] if odd else (ordered[at - 1] + ordered[at]) / 2
