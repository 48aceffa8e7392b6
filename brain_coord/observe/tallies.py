"""Counters and histograms that every request feeds: a number and a list each, written down when somebody asks.

The client library looks labels up, takes a lock and walks through the buckets for each value; for the nine values of a
request that took a tenth of its whole time. One thread feeds these, with the values of many requests at a time.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

Labels = tuple[str, ...]

MS: Final = 1000
"""Milliseconds of a second: records have those, and Prometheus takes seconds."""


class Count:
    """A counter with its labels; add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class CounterTally:
    """Counts by the values of its labels."""

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._counts: dict[Labels, Count] = {}
        if not labels:
            self.of()

    def of(self, *labels: str) -> Count:
        """The one with these labels."""
        return self._counts.get(labels) or self._counts.setdefault(labels, Count())

    def family(self) -> CounterMetricFamily:
        """As Prometheus takes it."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count.value)
        return family


class Spread:
    """A histogram with its labels."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, values: Iterable[float | None]) -> None:
        """Some values; `None` is none."""
        bounds, counts, total = self._bounds, self.counts, self.total
        for value in values:
            if value is not None:
                counts[bisect_left(bounds, value)] += 1
                total += value
        self.total = total


class HistogramTally:
    """Values sorted into buckets, by the values of its labels; fed with `per` times what it shows."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Labels = (), per: int = 1) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._per = per
        self._bounds = tuple(map(float, bounds))
        self._spreads: dict[Labels, Spread] = {}
        if not labels:
            self.of()

    def of(self, *labels: str) -> Spread:
        """The one with these labels; it shows from its first value on."""
        return self._spreads.get(labels) or self._spreads.setdefault(
            labels, Spread(tuple(bound * self._per for bound in self._bounds))
        )

    def family(self) -> HistogramMetricFamily:
        """As Prometheus takes it: each bucket with all below it."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, spread in self._spreads.items():
            buckets, total = [], 0
            for bound, count in zip((*map(str, self._bounds), "+Inf"), spread.counts, strict=True):
                total += count
                buckets.append((bound, total))
            if total or not labels:
                family.add_metric(labels, buckets, spread.total / self._per)
        return family
