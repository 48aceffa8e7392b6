"""Prometheus metrics of a coordinator, as a view of its records. Bounded labels: never a node id, a key or a free text."""

import asyncio
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import median, quantiles
from time import monotonic, time
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry, StateChange
from brain_coord.observe.families import STATES, by, one
from brain_coord.observe.finished import FinishedRequest
from brain_coord.observe.tab_gauges import TabFigures, tab_gauges
from brain_coord.observe.tallies import MS, CounterTally, HistogramTally
from brain_coord.receipts.body import ReceiptDraft

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
SPEEDS: Final = (1, 2, 5, 10, 20, 40, 60, 90, 130, 200, 300, 500)
LAGS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

LATE: Final = 1.5
"""A heartbeat that comes after so many periods is late."""

LAG_PERIOD_S: Final = 0.25

SLICE: Final = 200
"""Nodes that are counted in one go."""

CAUSES: Final = frozenset(
    {
        "bad_job", "busy", "cancelled", "connection_refused", "draining", "engine_error", "engine_lost", "engine_refused",
        "failed", "incomplete", "no_engine", "no_free_slot", "node_lost", "not_accepted", "protocol", "refused", "timeout",
        "too_large",
    }
)  # fmt: skip
"""Causes that are told apart; a label must not grow by the words of whoever has a new one."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where gauges look when they are asked for.

    Attributes:
        running: requests under way, the waiting ones included.
        waiting: requests in the queue.
        bodies: bytes of large request bodies that are held.
        receipts: `state` (ok, spooling, refusing), `spooled` and `since_s` of the receipt store.
        models: model ids of the catalog.
        cluster: how the cluster stands that the coordinator belongs to, `None` without one.
        tabs: how the browser network stands.
    """

    registry: Registry
    running: Callable[[], int]
    waiting: Callable[[], int]
    bodies: Callable[[], int]
    receipts: Callable[[], Mapping[str, Any]]
    models: frozenset[str]
    version: str
    cluster: Callable[[], Mapping[str, Any] | None] = lambda: None
    tabs: Callable[[], TabFigures] = TabFigures


@dataclass(slots=True)
class Metrics:
    """Fed by hooks; `expose` writes them down."""

    sources: Sources
    collector: CollectorRegistry = field(default_factory=CollectorRegistry)
    _heard: dict[str, float] = field(default_factory=dict)
    _live: "_Live" = field(init=False)
    requests: CounterTally = field(init=False)
    refused: Counter = field(init=False)
    attempts: CounterTally = field(init=False)
    tokens: CounterTally = field(init=False)
    recorded: CounterTally = field(init=False)
    seconds: HistogramTally = field(init=False)
    queue: HistogramTally = field(init=False)
    first_output: HistogramTally = field(init=False)
    speed: HistogramTally = field(init=False)
    changes: CounterTally = field(init=False)
    heartbeats: Counter = field(init=False)
    late: Counter = field(init=False)
    lag: Histogram = field(init=False)

    def __post_init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library left it untyped
        into = self.collector
        self.requests = CounterTally(
            "brain_requests", "Requests that were decided, by how they ended.", ("class", "mode", "outcome")
        )
        self.refused = Counter(
            "brain_requests_refused", "Requests that ended before a decision, by error code.", ("code",), registry=into
        )
        self.attempts = CounterTally("brain_attempts", "Attempts at targets, by result.", ("class", "result"))
        self.tokens = CounterTally("brain_tokens", "Tokens that count for the ledger.", ("kind",))
        self.recorded = CounterTally("brain_receipts_recorded", "Receipts made durable.")
        self.seconds = HistogramTally("brain_request_seconds", "Whole time of a request.", SECONDS, ("class",), MS)
        self.queue = HistogramTally("brain_queue_seconds", "Wait of a request for a free slot.", SECONDS, per=MS)
        self.first_output = HistogramTally(
            "brain_first_output_seconds", "Dispatch to first output of streamed answers.", SECONDS, ("class",), MS
        )
        self.speed = HistogramTally(
            "brain_decode_tokens_per_second", "Decode speed of streamed answers.", SPEEDS, ("class",)
        )
        self.changes = CounterTally(
            "brain_node_state_changes", "Changes of nodes' states, by the state that followed.", ("state",)
        )
        self.heartbeats = Counter("brain_heartbeats", "Heartbeats of nodes.", registry=into)
        self.late = Counter(
            "brain_heartbeats_late", "Heartbeats that came later than one and a half periods.", registry=into
        )
        self.lag = Histogram(
            "brain_event_loop_lag_seconds", "How late the event loop ran a due timer.", buckets=LAGS, registry=into
        )
        build = Gauge("brain_build_info", "Version of the coordinator.", ("version",), registry=into)
        build.labels(self.sources.version).set(1)
        for state in STATES:
            self.changes.of(state)
        for kind in ("prompt", "completion"):
            self.tokens.of(kind)
        self._live = _Live(self.sources, self._tallies)
        self.collector.register(self._live)
        ProcessCollector(namespace="brain", registry=into)

    def finished(self, requests: Sequence[FinishedRequest]) -> None:
        """Some requests are over."""
        self.recorded.of().value += sum(map(attrgetter("recorded"), requests))
        kinds: dict[tuple[str | None, str, str], list[ReceiptDraft]] = {}
        for request in requests:
            draft = request.draft
            kinds.setdefault((draft.resource_class, draft.mode, draft.outcome), []).append(draft)
        for (resource_class, mode, outcome), drafts in kinds.items():
            name = resource_class or "none"
            self.requests.of(name, mode, outcome).value += len(drafts)
            self._count(name, drafts)
            if outcome == "completed":
                self._count_completed(name, drafts)

    def _count(self, name: str, drafts: Sequence[ReceiptDraft]) -> None:
        """What any request of a class came to, however it ended."""
        timings = [draft.timings for draft in drafts]
        self.queue.of().observe(map(attrgetter("queued_ms"), timings))
        self.seconds.of(name).observe(map(attrgetter("total_ms"), timings))
        attempts = Counts((attempt.resource_class, attempt.cause) for draft in drafts for attempt in draft.attempts)
        for (resource_class, cause), count in attempts.items():
            self.attempts.of(resource_class, result_of(cause)).value += count

    def _count_completed(self, name: str, drafts: Sequence[ReceiptDraft]) -> None:
        """What only whole answers say."""
        self.first_output.of(name).observe(draft.timings.first_output_ms for draft in drafts if draft.streamed)
        self.speed.of(name).observe(draft.timings.decode_tok_s for draft in drafts)
        self.tokens.of("prompt").value += sum(draft.tokens.prompt_billed or 0 for draft in drafts)
        self.tokens.of("completion").value += sum(draft.tokens.completion_billed or 0 for draft in drafts)

    def _tallies(self) -> Iterator[Metric]:
        """What the requests fed."""
        for each in (self.requests, self.attempts, self.tokens, self.recorded, self.changes):
            yield each.family()
        for spread in (self.seconds, self.queue, self.first_output, self.speed):
            yield spread.family()

    def request_refused(self, code: str) -> None:
        """A request ended before a decision; `code` is one of the published error codes."""
        self.refused.labels(code).inc()

    def changed(self, change: StateChange) -> None:
        """A node's state became another."""
        self.changes.of(change.after).value += 1
        if change.after == "OFFLINE":
            self._heard.pop(change.node_id, None)

    def heartbeat(self, node: Node) -> None:
        """A heartbeat came."""
        now = monotonic()
        before = self._heard.get(node.node_id)
        self._heard[node.node_id] = now
        self.heartbeats.inc()
        if before is not None and now - before > LATE * self.sources.registry.heartbeat_s:
            self.late.inc()

    async def run(self) -> None:
        """Measure the event loop's lag; runs for ever."""
        while True:
            due = monotonic() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self.lag.observe(max(0.0, monotonic() - due))

    async def expose(self) -> bytes:
        """Everything in Prometheus' text format. Counts a slice of the fleet at a time, so that no request waits for it."""
        count = _Count()
        for number, node in enumerate(list(self.sources.registry.nodes.values()), 1):
            count.add(node)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        self._live.count = count
        return generate_latest(self.collector)


def result_of(cause: str | None) -> str:
    """The label for an attempt's cause."""
    if cause is None:
        return "answered"
    if cause.startswith("status_"):
        return f"status_{cause[7]}xx" if cause[7:8].isascii() and cause[7:8].isdigit() else "other"
    return cause if cause in CAUSES else "other"


@dataclass(slots=True)
class _Count:
    """The fleet, counted node by node."""

    states: Counts[str] = field(default_factory=Counts)
    serving: Counts[str] = field(default_factory=Counts)
    offered: int = 0
    active: int = 0
    unmeasured: int = 0
    rtts_s: list[float] = field(default_factory=list)
    scores: list[int] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Count one node."""
        self.states[node.state] += 1
        if not node.connected:
            return
        measured = node.measured
        self.offered += node.slots
        self.active += node.running
        self.unmeasured += measured.basis == "unmeasured"
        self.scores.append(node.reliability)
        self.serving.update(node.models)
        if (rtt_ms := measured.rtt.rtt_ms) is not None:
            self.rtts_s.append(rtt_ms / 1000)


class _Live(Collector):
    """Gauges that are read from the running coordinator when somebody asks."""

    def __init__(self, sources: Sources, tallies: Callable[[], Iterator[Metric]]) -> None:
        self._sources = sources
        self._tallies = tallies
        self.count = _Count()

    def collect(self) -> Iterator[Metric]:
        """All of them, and what requests were counted in."""
        yield from self._tallies()
        sources, count = self._sources, self.count
        states = {each: count.states[each] for each in STATES}
        yield by("brain_nodes", "Nodes that ever joined, by state.", "state", states)
        slots = {"offered": count.offered, "active": count.active}
        yield by("brain_slots", "Slots of connected nodes: offered, and active in a job.", "kind", slots)
        yield one(
            "brain_nodes_unmeasured",
            "Connected nodes without a token that the coordinator timed.",
            count.unmeasured,
        )
        serving = {model: count.serving[model] for model in sorted(sources.models) if count.serving[model]}
        yield by("brain_model_nodes", "Connected nodes that serve a model of the catalog.", "model", serving)
        rtts, scores = count.rtts_s, count.scores
        yield one(
            "brain_node_rtt_median_seconds", "Median over nodes of their round trip.", median(rtts) if rtts else None
        )
        yield one("brain_node_rtt_p95_seconds", "95th percentile over nodes of their round trip.", _p95(rtts))
        yield one(
            "brain_node_reliability_median",
            "Median over connected nodes of their reliability score.",
            median(scores) if scores else None,
        )
        cluster = sources.cluster()
        yield one(
            "brain_cluster_coordinators",
            "Coordinators that take jobs, this one among them; 1 without a cluster.",
            1 if cluster is None else len(cluster["replicas"]),
        )
        yield one(
            "brain_cluster_alone",
            "1 while Redis is away: the coordinator goes on with its own nodes, and limits hold for it alone.",
            0 if cluster is None else int(cluster["state"] == "alone"),
        )
        yield CounterMetricFamily(
            "brain_cluster_nodes_moved",
            "Nodes that this coordinator asked to link again elsewhere, as it held more than its share.",
            value=0 if cluster is None else cluster["nodes_moved"],
        )
        yield from tab_gauges(sources.tabs())
        waiting = sources.waiting()
        yield one("brain_requests_running", "Requests under way.", sources.running() - waiting)
        yield one("brain_requests_waiting", "Requests that wait for a free slot.", waiting)
        yield one("brain_request_bodies_bytes", "Bytes of request bodies above 64 KiB that are held.", sources.bodies())
        yield from self._receipts()

    def _receipts(self) -> Iterator[Metric]:
        health = self._sources.receipts()
        state, since_s = health["state"], health.get("since_s")
        behind = 0.0 if state == "ok" or since_s is None else max(0.0, time() - since_s)
        yield by(
            "brain_receipts_state",
            "1 for the state that holds: written to the database, kept on disk, or refused.",
            "state",
            {each: int(each == state) for each in ("ok", "spooling", "refusing")},
        )
        yield one(
            "brain_receipts_spooled", "Receipts on disk that the database does not have yet.", health.get("spooled", 0)
        )
        yield one("brain_receipts_lag_seconds", "For how long receipts have not reached the database.", behind)


def _p95(values: list[float]) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=20, method="inclusive")[-1]
