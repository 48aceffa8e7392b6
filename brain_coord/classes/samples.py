"""What a class knows of itself: recent outcomes and times of its own requests, unknown until there are some."""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite, nan
from statistics import median
from typing import Final, NamedTuple

SAMPLES: Final = 200

STEP: Final = 16
"""Once there are that many samples, the estimates move with every so many further ones, and with every failure: one answer
among 200 says little, and decisions whose inputs did not change need not be made again."""


class Estimates(NamedTuple):
    """What a class says of itself.

    Attributes:
        latency_ms: median time of those that wrote an answer, `None` without one.
        reliability: share of good outcomes, `None` without any.
        confidence: how many outcomes the two stand on.
    """

    latency_ms: float | None
    reliability: float | None
    confidence: int


NO_SAMPLES: Final = Estimates(None, None, 0)


@dataclass(slots=True)
class ClassSamples:
    """The last requests of one class, as the coordinator saw them.

    Attributes:
        estimates: what they come to; every decision reads them, and they change only by steps.
    """

    estimates: Estimates = NO_SAMPLES
    _good: deque[bool] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """In step with `_good`; not a number where the time says nothing."""
    _due: int = 1
    """Completed requests until the estimates are worked out anew."""

    def completed(self, latency_ms: float | None) -> None:
        """A request came back whole after `latency_ms`, from arrival to end; `None` where its time says nothing."""
        self._good.append(True)
        self._latencies_ms.append(nan if latency_ms is None else latency_ms)
        self._due -= 1
        if not self._due:
            self._reckon()

    def failed(self) -> None:
        """A target of the class failed by its own fault."""
        self._good.append(False)
        self._latencies_ms.append(nan)
        self._reckon()

    def _reckon(self) -> None:
        count = len(self._good)
        self._due = STEP if count == SAMPLES else 1
        times_ms = [*filter(isfinite, self._latencies_ms)]
        self.estimates = Estimates(
            round(median(times_ms), 3) if times_ms else None, round(sum(self._good) / count, 6), count
        )
