"""Round-trip time of a link, from pings timed on the coordinator's monotonic clock."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

SAMPLES: Final = 15
"""How many recent pings count; at the default period that is five minutes."""

MAX_OUTSTANDING: Final = 8
"""Pings without an answer that are remembered; older ones are given up."""


@dataclass(slots=True)
class RttEstimator:
    """Median of recent round trips of one link.

    A pong answers one ping once: an unknown or repeated number is ignored. The numbers must not be foreseeable, or a node
    could send its pong ahead of the ping and seem to sit next door.
    """

    _sent: dict[int, float] = field(default_factory=dict)
    _samples_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    rtt_ms: float | None = None
    """Median of the recent samples in ms, `None` before the first."""
    changed: Callable[[], None] | None = None
    """Called after every sample."""

    @classmethod
    def of(cls, values_ms: Sequence[float]) -> "RttEstimator":
        """The estimator with round trips that another coordinator timed, oldest first."""
        estimator = cls(_samples_ms=deque(values_ms, maxlen=SAMPLES))
        estimator.rtt_ms = round(median(values_ms), 3) if values_ms else None
        return estimator

    @property
    def values_ms(self) -> list[float]:
        """The samples that count, oldest first."""
        return list(self._samples_ms)

    def ping(self, n: int, now: float) -> int:
        """Ping `n`, a number nobody could guess, leaves now; returns it. `now` in seconds of the monotonic clock."""
        self._sent[n] = now
        if len(self._sent) > MAX_OUTSTANDING:
            del self._sent[next(iter(self._sent))]
        return n

    def pong(self, n: int, now: float, *, stalled: bool = False) -> float | None:
        """The round trip in ms, or `None` if it teaches nothing (unknown number, or our own loop was stalled)."""
        sent = self._sent.pop(n, None)
        if sent is None or stalled:
            return None
        rtt_ms = max(0.0, (now - sent) * 1000)
        self._samples_ms.append(rtt_ms)
        self.rtt_ms = round(median(self._samples_ms), 3)
        if self.changed is not None:
            self.changed()
        return rtt_ms

    def sent_at(self, n: int) -> float | None:
        """When ping `n` was sent, `None` if it is not in flight."""
        return self._sent.get(n)

    def lost(self) -> None:
        """Forget pings in flight, for example after the link was replaced."""
        self._sent.clear()

    @property
    def samples(self) -> int:
        """How many samples the median stands on."""
        return len(self._samples_ms)
