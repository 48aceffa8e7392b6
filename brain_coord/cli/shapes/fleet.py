"""What `nodes` and its subcommands, `targets` and `top` print. `measured` is by the coordinator, `reported` a claim."""

from typing import Literal

from pydantic import Field

from brain_coord.cli.shapes.base import Shape
from brain_coord.web.view.recent import DecisionRow
from brain_coord.web.view.rows import ClassRow, ModelRow, NodeRow
from brain_node.contract.messages import EngineClaim, Refusal


class Samples(Shape):
    """A median of recent samples."""

    median: float | None
    samples: int


class JoinBenchmark(Shape):
    """The latest join benchmark of one model."""

    tok_s: float
    first_output_ms: float
    compute_class: str | None
    measured_at_s: float
    """Wall time in seconds since 1970."""


class SlotsBorne(Shape):
    """Slots as far as the node was seen to bear them."""

    limit: int
    collapsed: bool
    """Whether it once bore fewer than it was given."""


class Measured(Shape):
    """On the coordinator's clock; by model where it says so."""

    rtt_ms: float | None
    rtt_samples: int
    credited_tok_s: dict[str, float]
    """What the router takes, by model."""
    reported_token_factor: dict[str, float]
    """By model, below 1 where the node reports more tokens than its peers do for as much text."""
    decode_tok_s: dict[str, Samples]
    first_output_ms: dict[str, Samples]
    slots: SlotsBorne
    benchmarks: dict[str, JoinBenchmark]


class Card(Shape):
    """A card as the node claims it."""

    name: str | None
    kind: str
    state: str
    total_bytes: int | None
    free_bytes: int | None
    utilization_percent: float | None
    temperature_c: float | None
    power_w: float | None


class Reported(Shape):
    """What the node says of itself."""

    agent_version: str | None
    slots: int
    vram_mib: int | None
    gpus: list[Card]
    engine: str | None
    engine_version: str | None
    engines: list[EngineClaim]


class Node(Shape):
    """One node as anybody may see it."""

    node_id: str
    state: Literal["ONLINE", "BUSY", "DEGRADED", "DRAINING", "OFFLINE"]
    degraded: str | None
    """Why it is set aside."""
    operator: bool
    trusted: bool
    region: str | None
    ask_usd_per_1m: float | None
    slots: int
    active: int
    serves: list[str]
    loaded: list[str]
    refused: list[Refusal]
    reliability: int
    outcomes: int
    suspect: bool
    basis: Literal["unmeasured", "coordinator-timed"]
    compute_class: str | None
    measured: Measured
    reported: Reported


class NodeRemembered(Shape):
    """One node while no coordinator runs."""

    node_id: str
    state: Literal["OFFLINE"]
    operator: bool
    trusted: bool
    basis: Literal["unmeasured", "coordinator-timed"]
    region: str | None
    serves: list[str]
    reliability: None


class NodeChanged(Node):
    """One node after the operator's word."""

    reason: str | None
    """Of its state."""
    way_back: str | None
    banned: str | None
    """Why."""
    draining: bool
    linked_at: str | None
    """The coordinator of the cluster that holds its link; null for this one, or for none."""


class ScoreTerm(Shape):
    """One summand of the score."""

    name: str
    points: float
    because: str


class ScoreEvent(Shape):
    """One outcome that the score stands on."""

    at_s: float
    kind: str
    result: str
    model: str | None
    detail: str | None


class Score(Shape):
    """The Brain Reliability Score, term by term."""

    score: int
    terms: list[ScoreTerm]
    sentence: str
    uptime_fraction: float
    events: list[ScoreEvent]
    """Newest first."""


class HealthRemembered(Shape):
    """Whether it is set aside."""

    degraded: str | None
    suspect: bool
    watched: bool


class Health(HealthRemembered):
    """What its state stands on."""

    faults_in_row: int
    canaries_failed_in_row: int
    benchmarks_failed_in_row: int
    comparisons: int
    comparisons_lost: int
    next_canary_in_s: float | None


class NodeShown(NodeChanged):
    """One node with everything that its score and its state stand on."""

    address: str | None
    first_seen_s: float
    score: Score | None
    health: Health
    skips: dict[str, int]
    """Requests of the last hour that passed it by, by reason."""


class BenchmarksRemembered(Shape):
    """What was measured."""

    benchmarks: dict[str, JoinBenchmark]


class NodeShownRemembered(Shape):
    """The same from the store alone, while no coordinator runs."""

    node_id: str
    state: str
    reason: str | None
    way_back: str | None
    degraded: str | None
    banned: str | None
    trusted: bool
    draining: bool
    operator: bool
    region: str | None
    first_seen_s: float
    reliability: int
    basis: Literal["unmeasured", "coordinator-timed"]
    measured: BenchmarksRemembered
    score: Score
    health: HealthRemembered


class Address(Shape):
    """Who joins from one address (of IPv6, one /64)."""

    address: str
    connected: list[str]
    seen: list[str]
    new_ids_last_day: int
    attempts_last_minute: int
    refused: int
    last_seen_s_ago: float


class Target(Shape):
    """One upstream; its key only as `set`."""

    resource_class: str = Field(alias="class")
    name: str
    url: str
    key: Literal["set"] | None
    state: Literal["ok", "last", "out", "unknown"]
    reason: str | None
    breaker: Literal["closed", "open", "half-open"]
    active: int
    slots: int
    models: dict[str, str]
    """Its name of each model, by ours."""
    not_listed: list[str]
    """Models that its own list does not have."""
    not_found: list[str]
    """What it answered 404 to."""
    ok_s_ago: float | None


class FleetSummary(Shape):
    """The fleet in one line."""

    states: list[tuple[str, int]]
    active: int
    slots: int
    models: int
    running: int
    waiting: int
    receipts: str
    nodes: int
    connected: int


class Top(Shape):
    """What /network shows."""

    summary: FleetSummary
    nodes: list[NodeRow]
    models: list[ModelRow]
    classes: list[ClassRow]
    decisions: list[DecisionRow]
