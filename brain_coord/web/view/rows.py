"""The tables of /network as frozen records; equal records need no new HTML."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from statistics import median
from typing import Final

from brain_coord.classes.backend import ClassBackend
from brain_coord.classes.samples import NO_SAMPLES
from brain_coord.fleet.node import Node
from brain_coord.routing.vocabulary import ResourceClass
from brain_coord.routing.weights import TRUST_OF
from brain_node.contract.catalog import Catalog, Model

ROWS_SHOWN: Final = 200
"""Rows of the tables of nodes and of tabs; larger fleets are listed in full by /v1/nodes and /v1/tabs."""

_ORDER: Final = {"BUSY": 0, "ONLINE": 1, "DEGRADED": 2, "DRAINING": 3, "OFFLINE": 4}
STATES: Final = tuple(_ORDER)


def place_of(state: str, node_id: str) -> tuple[int, str]:
    """Where a row stands in its table: working ones first, then by id."""
    return _ORDER[state], node_id


@dataclass(frozen=True, slots=True)
class Speed:
    """Decode speed of one model on one node, in tokens per second.

    Attributes:
        basis: `n answers` when customers' answers gave it, else `join benchmark`.
    """

    model: str
    tok_s: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node: what was measured here, and beside it what the node claims."""

    node_id: str
    state: str
    why: str | None
    operator: bool
    trusted: bool
    region: str | None
    models: tuple[str, ...]
    active: int
    slots: int
    claimed_slots: int
    speeds: tuple[Speed, ...]
    rtt_ms: float | None
    reliability: int
    compute_class: str | None
    measured: bool
    ask_usd_per_1m: float | None
    cards: tuple[str, ...]
    vram_mib: int | None
    engine: str | None
    engines: tuple[tuple[str, str, str | None], ...]
    skipped: str | None

    @property
    def free(self) -> int:
        """Jobs it could take now."""
        return max(0, self.slots - self.active)


def node_row(node: Node, skipped: str | None = None) -> NodeRow:
    """The row of one node; `skipped` is why most requests passed it by lately."""
    report, measured, offer = node.reported.report, node.measured, node.reported.offer
    best = measured.best
    engine = " ".join(part for part in (report.engine, report.engine_version) if part) or None
    return NodeRow(
        node_id=node.node_id,
        state=node.state,
        why="banned by the operator" if node.banned is not None else node.degraded,
        operator=node.operator,
        trusted=node.trusted,
        region=offer.region,
        models=tuple(node.models),
        active=node.running,
        slots=node.slots,
        claimed_slots=offer.slots,
        speeds=speeds_of(node),
        rtt_ms=None if measured.rtt.rtt_ms is None else round(measured.rtt.rtt_ms, 1),
        reliability=node.reliability,
        compute_class=None if best is None else best.compute_class,
        measured=measured.basis != "unmeasured",
        ask_usd_per_1m=offer.ask_usd_per_1m,
        cards=_counted(gpu.name or "unnamed card" for gpu in report.gpus),
        vram_mib=report.vram_mib,
        engine=engine,
        engines=tuple((claim.model, claim.state, claim.cause) for claim in node.reported.engines),
        skipped=skipped,
    )


def speeds_of(node: Node) -> tuple[Speed, ...]:
    """Speed by model, from customers' answers where there were any, else from the join benchmark."""
    rows = []
    for model in node.models:
        window, benchmark = node.measured.decode_tok_s.get(model), node.measured.benchmarks.get(model)
        if window is not None and window.value is not None:
            rows.append(Speed(model, round(window.value, 1), f"{window.samples} answers"))
        elif benchmark is not None:
            rows.append(Speed(model, round(benchmark.decode_tok_s, 1), "join benchmark"))
        else:
            rows.append(Speed(model, None, "not measured yet"))
    return tuple(rows)


def _counted(names: Iterable[str]) -> tuple[str, ...]:
    """`2 × name` for equal cards."""
    return tuple(name if count == 1 else f"{count} × {name}" for name, count in Counter(names).items())


@dataclass(slots=True)
class Serving:
    """Who serves one model."""

    nodes: int = 0
    loaded: int = 0
    free: int = 0
    speeds: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Census:
    """The whole fleet, counted node by node: whoever counts thousands can pause in between."""

    states: Counter[str] = field(default_factory=Counter)
    active: int = 0
    slots: int = 0
    serving: dict[str, Serving] = field(default_factory=dict)
    lowest_ask: dict[bool, float] = field(default_factory=dict)
    """Lowest ask in USD per million tokens: of the operator's own nodes, and of the others."""
    _ranked: list[tuple[tuple[int, str], Node]] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Count one node."""
        state = node.state
        self.states[state] += 1
        self._ranked.append((place_of(state, node.node_id), node))
        if not node.connected:
            return
        self.active += node.running
        self.slots += node.slots
        ask = node.reported.offer.ask_usd_per_1m
        if ask is not None:
            self.lowest_ask[node.operator] = min(ask, self.lowest_ask.get(node.operator, ask))
        free = node.free if state in ("ONLINE", "BUSY") else 0
        loaded = node.loaded
        for model in node.models:
            serving = self.serving.get(model)
            if serving is None:
                serving = self.serving[model] = Serving()
            serving.nodes += 1
            serving.free += free
            serving.loaded += model in loaded
            if (tok_s := _speed(node, model)) is not None:
                serving.speeds.append(tok_s)

    def first(self, limit: int = ROWS_SHOWN) -> list[Node]:
        """The nodes of the table: working ones first, then by id."""
        return [node for _, node in nsmallest(limit, self._ranked)]


@dataclass(frozen=True, slots=True)
class Summary:
    """The fleet in one line."""

    states: tuple[tuple[str, int], ...]
    active: int
    slots: int
    models: int
    running: int
    waiting: int
    receipts: str

    @property
    def nodes(self) -> int:
        """Every node that ever joined."""
        return sum(count for _, count in self.states)

    @property
    def connected(self) -> int:
        """Nodes with an open link."""
        return sum(count for state, count in self.states if state != "OFFLINE")


def summary_of(census: Census, *, models: int, running: int, waiting: int, receipts: str) -> Summary:
    """The fleet and the gateway in one line."""
    states = tuple((state, census.states[state]) for state in STATES)
    return Summary(states, census.active, census.slots, models, running, waiting, receipts)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model of the catalog: who serves it, and how fast."""

    model: str
    name: str
    classes: tuple[str, ...]
    nodes: int
    loaded: int
    free: int
    tok_s: float | None
    slowest_tok_s: float | None
    fastest_tok_s: float | None
    min_vram_mib: int
    mock: bool


def offers_of(backends: Sequence[ClassBackend]) -> dict[str, list[str]]:
    """Every model on offer now, with the classes that offer it."""
    offers: dict[str, list[str]] = {}
    for backend in backends:
        for model_id in backend.models():
            offers.setdefault(model_id, []).append(str(backend.resource_class))
    return offers


def model_row(model: Model, census: Census, offers: Mapping[str, Sequence[str]]) -> ModelRow:
    """The row of one model."""
    serving = census.serving.get(model.id, Serving())
    speeds = serving.speeds
    return ModelRow(
        model=model.id,
        name=model.name,
        classes=tuple(offers.get(model.id, ())),
        nodes=serving.nodes,
        loaded=serving.loaded,
        free=serving.free,
        tok_s=round(median(speeds), 1) if speeds else None,
        slowest_tok_s=round(min(speeds), 1) if speeds else None,
        fastest_tok_s=round(max(speeds), 1) if speeds else None,
        min_vram_mib=model.min_vram_mib,
        mock=model.mock,
    )


def model_rows(catalog: Catalog, census: Census, offers: Mapping[str, Sequence[str]]) -> tuple[ModelRow, ...]:
    """Every model that is on offer now, in catalog order."""
    return tuple(model_row(model, census, offers) for model in catalog if model.id in offers)


def _speed(node: Node, model: str) -> float | None:
    window, benchmark = node.measured.decode_tok_s.get(model), node.measured.benchmarks.get(model)
    if window is not None and window.value is not None:
        return window.value
    return None if benchmark is None else benchmark.decode_tok_s


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One resource class; what it does not know of itself is `None` and shown as UNKNOWN."""

    resource_class: str
    trust: str
    configured: bool
    """Whether the operator set it up; the networks of strangers need no setting up."""
    models: int
    latency_ms: float | None
    reliability: float | None
    cost_usd_per_1m: float | None
    """The lowest price of answer tokens that is known."""
    quality: float | None
    """The highest tier that its operator set."""
    samples: int


def class_rows(
    backends: Sequence[ClassBackend], census: Census, offers: Mapping[str, Sequence[str]]
) -> tuple[ClassRow, ...]:
    """All four classes, in the order of the documentation."""
    by_class = {backend.resource_class: backend for backend in backends}
    of_nodes = {ResourceClass.NATIVE_NETWORK: False, ResourceClass.CLOUD_GPU: True}
    rows = []
    for resource_class in ResourceClass:
        backend = by_class.get(resource_class)
        estimates = NO_SAMPLES if backend is None else backend.samples.estimates
        offered = () if backend is None else tuple(backend.offers())
        prices = [each.prices.completion_usd_per_1m for each in offered]
        if (own := of_nodes.get(resource_class)) is not None:
            prices.append(census.lowest_ask.get(own))
        rows.append(
            ClassRow(
                resource_class=str(resource_class),
                trust=str(TRUST_OF[resource_class]),
                configured=backend is not None and backend.configured,
                models=sum(str(resource_class) in classes for classes in offers.values()),
                latency_ms=estimates.latency_ms,
                reliability=estimates.reliability,
                cost_usd_per_1m=min((price for price in prices if price is not None), default=None),
                quality=max((each.quality for each in offered if each.quality is not None), default=None),
                samples=estimates.confidence,
            )
        )
    return tuple(rows)
