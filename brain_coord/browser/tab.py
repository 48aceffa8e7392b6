"""One browser tab as the coordinator knows it: its session, what it claims, and what was measured and verified here."""

from dataclasses import dataclass, field
from typing import Any, Final

from brain_coord.fleet.node import Session
from brain_coord.fleet.standing import Standing
from brain_coord.measure.rtt import RttEstimator
from brain_coord.routing.inputs import NodeState
from brain_coord.routing.vocabulary import Basis, Liveness
from brain_node.contract.messages import Offer, Report

MATMUL: Final = "compute.matmul_u32"
"""The capability that every tab has, and the name of the work on receipts."""

FIRST_WAY_BACK_S: Final = 300.0
LAST_WAY_BACK_S: Final = 6 * 3600.0


@dataclass(slots=True)
class Strikes:
    """What a tab was caught at. Times in seconds of the monotonic clock."""

    count: int = 0
    reason: str | None = None
    until: float = 0.0

    def add(self, reason: str, now: float) -> None:
        """Caught once more: it is set aside, each time for twice as long."""
        self.until = now + min(LAST_WAY_BACK_S, FIRST_WAY_BACK_S * 2**self.count)
        self.count += 1
        self.reason = reason

    def holds(self, now: float) -> str | None:
        """Why the tab is set aside, `None` when it is not."""
        return self.reason if now < self.until else None


@dataclass(slots=True)
class Verified:
    """Work that came back and stood its check."""

    units: int = 0
    operations: int = 0
    tokens: int = 0
    refused: int = 0
    """Answers that did not stand it."""


@dataclass(slots=True, eq=False)
class Tab:
    """A tab that has joined at least once since the coordinator started, connected or not."""

    tab_id: str
    first_seen_s: float | None = None
    """Wall time at which it first came."""
    banned: str | None = None
    """Why the operator banned it; it may not join then."""
    session: Session | None = None
    report: Report = field(default_factory=Report)
    offer: Offer = field(default_factory=Offer)
    draining: bool = False
    """Paused, at its duty limit, hidden or on battery, as the tab says."""
    active: int = 0
    ops_s: float | None = None
    """u32 operations per second in its join challenge; `None` until it passed one in this session."""
    tok_s: dict[str, float] = field(default_factory=dict)
    """Speed by stage."""
    stages: set[str] = field(default_factory=set)
    """Stages of models that are loaded and agree with their replicas."""
    loading: str | None = None
    rtt: RttEstimator = field(default_factory=RttEstimator)
    standing: Standing = field(default_factory=Standing)
    strikes: Strikes = field(default_factory=Strikes)
    verified: Verified = field(default_factory=Verified)

    @property
    def connected(self) -> bool:
        """Whether a link is open."""
        return self.session is not None

    @property
    def slots(self) -> int:
        """Jobs it offers to run at once."""
        return self.offer.slots

    @property
    def free(self) -> int:
        """Jobs it could take now."""
        return max(0, self.slots - self.active)

    @property
    def memory_mib(self) -> int | None:
        """What it says it would give to weights; a claim, so it can only exclude."""
        return self.report.vram_mib

    def why_aside(self, now: float) -> str | None:
        """Why it gets no work, for the operator's word or for what it was caught at; `None` when it may."""
        return self.strikes.holds(now) if self.banned is None else f"banned: {self.banned}"

    def liveness(self, now: float) -> Liveness:
        """Worst news first."""
        if self.session is None:
            return Liveness.OFFLINE
        if self.strikes.holds(now) is not None:
            return Liveness.DEGRADED
        if self.draining or self.session.closing:
            return Liveness.DRAINING
        return Liveness.BUSY if self.active else Liveness.ONLINE

    def state(self, now: float, now_s: float) -> NodeState:
        """As the node router sees it: the same rules and weights as for Brain Nodes."""
        serves = frozenset({MATMUL, *self.stages})
        speeds: dict[str, float | None] = {MATMUL: self.ops_s, **self.tok_s}
        return NodeState(
            node_id=self.tab_id,
            state=self.liveness(now),
            slots=self.slots,
            active=self.active,
            serves=serves,
            loaded=serves,
            reported_vram_mib=self.memory_mib,
            tok_s=speeds,
            basis=Basis.UNMEASURED if self.ops_s is None else Basis.COORDINATOR_TIMED,
            rtt_ms=self.rtt.rtt_ms,
            reliability=self.standing.score(now_s),
            region=self.offer.region,
        )

    def view(self, now: float, now_s: float) -> dict[str, Any]:
        """As anybody may see it: claims beside measurements, no address."""
        card = next((gpu.name for gpu in self.report.gpus if gpu.name), None)
        return {
            "node_id": self.tab_id,
            "kind": "browser",
            "state": str(self.liveness(now)),
            "reason": self.why_aside(now),
            "first_seen_s": self.first_seen_s,
            "slots": self.slots,
            "active": self.active,
            "stages": sorted(self.stages),
            "loading": self.loading,
            "measured": {
                "ops_s": self.ops_s,
                "rtt_ms": self.rtt.rtt_ms,
                "reliability": self.standing.score(now_s),
                "units_verified": self.verified.units,
                "operations_verified": self.verified.operations,
                "answers_refused": self.verified.refused,
                "tokens": self.verified.tokens,
            },
            "reported": {"adapter": card, "memory_mib": self.memory_mib, "operands": self.report.engine_version},
        }
