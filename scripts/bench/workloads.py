"""What is asked of every system."""

from dataclasses import dataclass
from typing import Final

from scripts.bench.wire import Ask

ENDLESS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load.

    Attributes:
        title: one line for the table.
        figure: what its ratios compare: `requests` or `events` a second (more is better), or `first_output_ms`.
        long: streams outlast the window.
    """

    name: str
    title: str
    ask: Ask
    connections: int
    figure: str = "requests"
    long: bool = False
    slow_readers: int = 0


WORKLOADS: Final = (
    Workload("short", "short streams, 16 connections, 16 events", Ask(16), 16),
    Workload("alone", "one connection alone, 16 events: first output", Ask(16), 1, figure="first_output_ms"),
    Workload("unary", "not streamed, 16 connections", Ask(16, stream=False), 16),
    Workload("large", "4 MB bodies, 4 connections, not streamed", Ask(16, stream=False, body_bytes=4 << 20), 4),
    Workload("slow", "short streams beside 4 slow readers", Ask(16), 16, slow_readers=4),
    Workload("long-100", "100 streams, 100 events/s each", Ask(ENDLESS, 100), 100, figure="events", long=True),
    Workload("long-500", "500 streams, 100 events/s each", Ask(ENDLESS, 100), 500, figure="events", long=True),
)
