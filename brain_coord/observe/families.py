"""Metric families that are made anew at each scrape."""

from collections.abc import Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

STATES: Final = ("ONLINE", "BUSY", "DEGRADED", "DRAINING", "OFFLINE")


def one(name: str, text: str, value: float | None) -> Metric:
    """A gauge; without a sample while its value is not known."""
    return GaugeMetricFamily(name, text, value=value)


def by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A gauge with one label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family
