"""What `tabs`, `tabs ban` and `tabs unban` print. `measured` is by the coordinator, `reported` a claim."""

from typing import Literal

from brain_coord.cli.shapes.base import Shape


class TabVerified(Shape):
    """What was checked of its work."""

    rtt_ms: float | None
    reliability: int | None
    units_verified: int
    operations_verified: int
    answers_refused: int
    tokens: int


class TabMeasured(TabVerified):
    """The same, with its speed."""

    ops_s: float | None


class TabReported(Shape):
    """What the tab says of itself."""

    adapter: str | None
    memory_mib: int | None
    operands: str | None


class Tab(Shape):
    """One browser tab."""

    node_id: str
    kind: Literal["browser"]
    state: Literal["ONLINE", "BUSY", "DEGRADED", "DRAINING", "OFFLINE"]
    reason: str | None
    """Why it gets no work."""
    first_seen_s: float
    slots: int
    active: int
    stages: list[str]
    loading: str | None
    measured: TabMeasured
    reported: TabReported


class TabRemembered(Shape):
    """One browser tab while no coordinator runs, or one that has not come back since."""

    node_id: str
    kind: Literal["browser"]
    state: Literal["OFFLINE"]
    reason: str | None
    first_seen_s: float
    stages: list[str]
    measured: TabVerified
