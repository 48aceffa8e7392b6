"""Counters and histograms that every request feeds: a dictionary and a list each, written down when somebody asks.

The client library looks labels up, takes a lock and walks through the buckets for each value; for the nine values of a
request that took a tenth of its whole time. One thread feeds these.
"""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

Labels = tuple[str, ...]


class CounterTally:
    """Counts by the values of its labels."""

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Count."""
        values = self.values
        values[labels] = values.get(labels, 0) + amount

    def family(self) -> CounterMetricFamily:
        """As Prometheus takes it."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class HistogramTally:
    """Values sorted into buckets, by the values of its labels."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._bounds = tuple(map(float, bounds))
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._begin(())

    def _begin(self, labels: Labels) -> list[int]:
        counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
        self._sums[labels] = 0.0
        return counts

    def observe(self, value: float, labels: Labels = ()) -> None:
        """One value."""
        counts = self._counts.get(labels) or self._begin(labels)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def family(self) -> HistogramMetricFamily:
        """As Prometheus takes it: each bucket with all below it."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, counts in self._counts.items():
            buckets, total = [], 0
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(labels, buckets, self._sums[labels])
        return family
