"""What a class knows of itself: recent outcomes and times of its own requests, unknown until there are some."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SAMPLES: Final = 200

STEP: Final = 16
"""Once there are that many samples, the estimates move with every so many further ones, and with every failure: one answer
among 200 says little, and decisions whose inputs did not change need not be made again."""


@dataclass(slots=True)
class ClassSamples:
    """The last requests of one class, as the coordinator saw them.

    Every decision reads the estimates, so they are reckoned only after they changed, and change only by steps.
    """

    _outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _latency_ms: float | None = None
    _reliability: float | None = None
    _stale: bool = False
    _unreckoned: int = 0

    def completed(self, latency_ms: float) -> None:
        """A request came back whole after `latency_ms`, from arrival to end."""
        self._outcomes.append(True)
        self._latencies_ms.append(latency_ms)
        self._unreckoned += 1
        self._stale = self._stale or len(self._outcomes) < SAMPLES or self._unreckoned >= STEP

    def failed(self) -> None:
        """A target of the class failed by its own fault."""
        self._outcomes.append(False)
        self._stale = True

    def _reckon(self) -> None:
        self._stale, self._unreckoned = False, 0
        self._latency_ms = round(median(self._latencies_ms), 3) if self._latencies_ms else None
        self._reliability = round(sum(self._outcomes) / len(self._outcomes), 6)

    @property
    def estimates(self) -> tuple[float | None, float | None, int]:
        """Latency, reliability and confidence at once."""
        if self._stale:
            self._reckon()
        return self._latency_ms, self._reliability, len(self._outcomes)

    @property
    def latency_ms(self) -> float | None:
        """Median time of a completed request, `None` without one."""
        if self._stale:
            self._reckon()
        return self._latency_ms

    @property
    def reliability(self) -> float | None:
        """Share of good outcomes, `None` without any."""
        if self._stale:
            self._reckon()
        return self._reliability

    @property
    def confidence(self) -> int:
        """How many outcomes the estimates stand on."""
        return len(self._outcomes)
