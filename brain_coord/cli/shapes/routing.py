"""What `route` prints: both decisions, or whether a recorded one comes out again. ROUTING.md explains every figure."""

from pydantic import Field

from brain_coord.cli.shapes.base import Shape


class Penalties(Shape):
    """Of one eligible class, before their weights, each 0 to 1."""

    cost: float
    latency: float
    reliability: float
    quality: float


class ClassDecision(Shape):
    """Which class takes a request, and why."""

    mode: str
    requested_mode: str
    privacy: str
    privacy_conflict: bool
    selected: str | None
    community_first: bool
    reason: str
    order: list[str]
    scores: dict[str, float | None]
    penalties: dict[str, Penalties]
    unknown: dict[str, list[str]]
    """Penalties that stand on no value, by class."""
    exclusions: dict[str, list[str]]


class Pool(Shape):
    """What the eligible nodes were compared against."""

    max_tok_s: float | None
    median_rtt_ms: float | None
    highest_ask_usd_per_1m: float | None


class NodeScore(Shape):
    """One eligible node: its total, and the terms before their weights."""

    node_id: str
    total: float
    capability: float
    availability: float
    latency: float
    reputation: float
    price: float
    notes: list[str]


class PairScore(NodeScore):
    """The same for one model that the node could answer with."""

    model: str


class Unlisted(Shape):
    """What the lists leave out."""

    ranked: int
    rejected: int
    reasons: dict[str, int]


class NodeDecision(Shape):
    """Which node takes a request for one model, and why."""

    model: str
    selected: str | None
    reason: str
    considered: int
    pool: Pool
    ranked: list[NodeScore]
    rejections: dict[str, list[str]]
    unlisted: Unlisted | None = None


class AutoNodeDecision(Shape):
    """Which node and which model take a request for `brain/auto`."""

    model: str | None
    selected: str | None
    reason: str
    considered: int
    pools: dict[str, Pool]
    ranked: list[PairScore]
    rejections: dict[str, list[str]]
    unlisted: Unlisted | None = None


class Decided(Shape):
    """Both decisions of one snapshot; null where there was nothing to decide."""

    class_decision: ClassDecision | None = Field(alias="class")
    node: NodeDecision | AutoNodeDecision | None


class Replayed(Shape):
    """Whether the decision on a receipt comes out again."""

    receipt: str
    same: bool
    complete: bool
    """Whether every candidate is on the receipt."""
    differences: list[str]
