"""What a class knows of itself: recent outcomes and times of its own requests, unknown until there are some."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SAMPLES: Final = 200


@dataclass(slots=True)
class ClassSamples:
    """The last requests of one class, as the coordinator saw them."""

    _outcomes: deque[bool] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def completed(self, latency_ms: float) -> None:
        """A request came back whole after `latency_ms`, from arrival to end."""
        self._outcomes.append(True)
        self._latencies_ms.append(latency_ms)

    def failed(self) -> None:
        """A target of the class failed by its own fault."""
        self._outcomes.append(False)

    @property
    def latency_ms(self) -> float | None:
        """Median time of a completed request, `None` without one."""
        return round(median(self._latencies_ms), 3) if self._latencies_ms else None

    @property
    def reliability(self) -> float | None:
        """Share of good outcomes, `None` without any."""
        return round(sum(self._outcomes) / len(self._outcomes), 6) if self._outcomes else None

    @property
    def confidence(self) -> int:
        """How many outcomes the estimates stand on."""
        return len(self._outcomes)
