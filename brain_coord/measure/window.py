"""Median over recent samples of one quantity: robust against stalls and against the odd lie, with its count and its age."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SAMPLES: Final = 50
"""How many recent samples count."""

MAX_AGE_S: Final = 24 * 3600.0
"""A sample older than this no longer counts: one slow day must not follow a node for ever."""


@dataclass(slots=True)
class MedianWindow:
    """The last samples of one quantity; times in seconds of the monotonic clock."""

    _samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _value: float | None = None
    _stale: bool = False

    @classmethod
    def of(cls, values: Iterable[float], now: float) -> "MedianWindow":
        """The window with samples that another coordinator took, oldest first."""
        return cls(deque(((now, value) for value in values), maxlen=SAMPLES), _stale=True)

    @property
    def value(self) -> float | None:
        """The median, `None` before the first sample."""
        if self._stale:
            self._stale = False
            self._value = median([value for _, value in self._samples]) if self._samples else None
        return self._value

    def add(self, value: float, now: float) -> None:
        """Add one sample."""
        self._samples.append((now, value))
        self._stale = True
        self.expire(now)

    def at_most(self, value: float, now: float) -> bool:
        """Add an upper bound. It teaches something only where it contradicts the median; returns whether it did."""
        if self.value is None or value >= self.value:
            return False
        self.add(value, now)
        return True

    def expire(self, now: float) -> bool:
        """Forget samples that are too old; returns whether there were any."""
        expired = False
        while self._samples and self._samples[0][0] < now - MAX_AGE_S:
            self._samples.popleft()
            expired = True
        self._stale = self._stale or expired
        return expired

    @property
    def values(self) -> list[float]:
        """The samples that count, oldest first."""
        return [value for _, value in self._samples]

    @property
    def samples(self) -> int:
        """How many samples the median stands on."""
        return len(self._samples)
