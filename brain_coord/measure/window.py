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
    value: float | None = None
    """The median, `None` before the first sample; kept up to date here because a router reads it for every request."""

    @classmethod
    def of(cls, values: Iterable[float], now: float) -> "MedianWindow":
        """The window with samples that another coordinator took, oldest first."""
        window = cls(deque(((now, value) for value in values), maxlen=SAMPLES))
        window._settle()
        return window

    def add(self, value: float, now: float) -> None:
        """Add one sample."""
        self._samples.append((now, value))
        self.expire(now)
        self._settle()

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
        if expired:
            self._settle()
        return expired

    def _settle(self) -> None:
        self.value = median([value for _, value in self._samples]) if self._samples else None

    @property
    def values(self) -> list[float]:
        """The samples that count, oldest first."""
        return [value for _, value in self._samples]

    @property
    def samples(self) -> int:
        """How many samples the median stands on."""
        return len(self._samples)
