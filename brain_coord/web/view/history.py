"""Requests, first output, speed and fleet size over the last day, in memory: for the charts of /network."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final

from brain_coord.observe.finished import FinishedRequest

PERIOD_S: Final = 15.0
KEEP_S: Final = 24 * 3600.0
SAMPLES: Final = 500
"""Timings of one period that count; more would change a median by nothing that a chart shows."""

ENDED_WELL: Final = frozenset({"completed", "client_cancelled", "slow_client"})


@dataclass(frozen=True, slots=True)
class Point:
    """One period; times in seconds since 1970, `None` where nothing was measured."""

    at_s: float
    served: int
    failed: int
    first_output_p50_ms: float | None
    first_output_p95_ms: float | None
    decode_p50_tok_s: float | None
    states: Mapping[str, int]


@dataclass(slots=True)
class History:
    """Collects the period that runs, and keeps those before it."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=int(KEEP_S / PERIOD_S)))
    _served: int = 0
    _failed: int = 0
    _first_ms: list[float] = field(default_factory=list)
    _tok_s: list[float] = field(default_factory=list)

    def finished(self, requests: Sequence[FinishedRequest]) -> None:
        """Some more requests in this period."""
        served = sum(request.draft.outcome in ENDED_WELL for request in requests)
        self._served += served
        self._failed += len(requests) - served
        if len(self._first_ms) >= SAMPLES:
            return
        for draft in [request.draft for request in requests if request.draft.outcome == "completed"]:
            timings = draft.timings
            if draft.streamed and timings.first_output_ms is not None:
                self._first_ms.append(timings.first_output_ms)
            if timings.decode_tok_s is not None:
                self._tok_s.append(timings.decode_tok_s)

    def close_period(self, at_s: float, states: Mapping[str, int]) -> Point:
        """End the period that runs; `states` counts the nodes by state now."""
        point = Point(
            at_s=at_s,
            served=self._served,
            failed=self._failed,
            first_output_p50_ms=_median(self._first_ms),
            first_output_p95_ms=_p95(self._first_ms),
            decode_p50_tok_s=_median(self._tok_s),
            states=dict(states),
        )
        self._served = self._failed = 0
        self._first_ms, self._tok_s = [], []
        self.points.append(point)
        return point

    def columns(self, since_s: float, at_most: int = 360) -> dict[str, list[Any]]:
        """The points after a time as columns for a chart, merged to at most so many rows."""
        points = [point for point in self.points if point.at_s > since_s]
        size = max(1, -(-len(points) // at_most))
        merged = [_merge(points[at : at + size]) for at in range(0, len(points), size)]
        return {name: [row[name] for row in merged] for name in _COLUMNS}


_COLUMNS: Final = (
    "time_s",
    "served_per_s",
    "failed_per_s",
    "first_output_p50_ms",
    "first_output_p95_ms",
    "decode_p50_tok_s",
    "online",
    "busy",
    "degraded",
    "draining",
    "offline",
)


def _merge(points: list[Point]) -> dict[str, Any]:
    last, span_s = points[-1], PERIOD_S * len(points)
    return {
        "time_s": last.at_s,
        "served_per_s": round(sum(point.served for point in points) / span_s, 4),
        "failed_per_s": round(sum(point.failed for point in points) / span_s, 4),
        "first_output_p50_ms": _median(_known(point.first_output_p50_ms for point in points)),
        "first_output_p95_ms": max(_known(point.first_output_p95_ms for point in points), default=None),
        "decode_p50_tok_s": _median(_known(point.decode_p50_tok_s for point in points)),
        **{state.lower(): last.states.get(state, 0) for state in ("ONLINE", "BUSY", "DEGRADED", "DRAINING", "OFFLINE")},
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: list[float]) -> float | None:
    return round(median(values), 3) if values else None


def _p95(values: list[float]) -> float | None:
    if len(values) < 2:
        return round(values[0], 3) if values else None
    return round(quantiles(values, n=20, method="inclusive")[-1], 3)
