"""One node as the coordinator knows it: claims, measurements and the session that is open, kept apart."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from brain_coord.fleet.duplicates import DuplicateGuard
from brain_coord.fleet.health import Health
from brain_coord.fleet.measured import Basis, Measured
from brain_coord.fleet.skips import SkipTally
from brain_coord.fleet.states import Facts, State, StateView, explain_state, state_of
from brain_coord.fleet.watched import Watched
from brain_coord.measure.slots import START, BorneSlots, Load
from brain_node.contract.messages import EngineClaim, GpuClaim, Message, Offer, Refusal, Report

__all__ = ["Basis", "Elsewhere", "LinkSender", "Measured", "Node", "Reported", "Session", "SlotPool", "State"]


class LinkSender(Protocol):
    """The sending half of an open link."""

    async def send(self, message: Message) -> None:
        """Send one message; errors of a dying link are swallowed, its reader notices them."""

    async def close(self, code: int, reason: str) -> None:
        """Close the link."""


class SlotPool(Protocol):
    """The slot connections of one session."""

    @property
    def open(self) -> int:
        """How many slot connections are open, idle or busy."""

    def close(self, reason: str) -> None:
        """Close every slot; jobs on them end as lost."""


@dataclass(slots=True, eq=False)
class Session(Watched):
    """One open link of a node. Times in seconds of the monotonic clock."""

    unwatched: ClassVar = frozenset({"last_heard"})

    session_id: str
    link: LinkSender
    slots: SlotPool
    ticket: str
    address: str
    joined_at: float
    last_heard: float
    closing: bool = False


@dataclass(slots=True, eq=False, weakref_slot=True)
class Elsewhere:
    """The link of a node that another coordinator of the cluster holds. The registry tells itself when its jobs change."""

    replica: str
    epoch: int
    """Tells this session from the node's earlier and later ones."""
    others: int = 0
    """Jobs on it that this coordinator did not give, as its holder said last."""
    own: int = 0
    """Jobs on it that this coordinator gave."""

    @property
    def running(self) -> int:
        """Jobs on it."""
        return self.others + self.own


@dataclass(slots=True)
class Reported(Watched):
    """What the node said of itself; it can only exclude the node."""

    unwatched: ClassVar = frozenset({"telemetry", "engines"})

    report: Report = field(default_factory=Report)
    offer: Offer = field(default_factory=Offer)
    refused: tuple[Refusal, ...] = ()
    telemetry: tuple[GpuClaim, ...] = ()
    engines: tuple[EngineClaim, ...] = ()
    agent_version: str | None = None
    draining: bool = False

    @property
    def fingerprint(self) -> str:
        """What measurements stand on: engine, cards and memory. A change asks for new ones."""
        cards = sorted(f"{gpu.name}:{gpu.total_bytes}" for gpu in self.report.gpus if gpu.state == "ok")
        return f"{self.report.engine}/{self.report.engine_version}|{self.report.cpu_count}|{','.join(cards)}"

    def fingerprint_of(self, model: str) -> str:
        """The same for one model, with the context it is served with."""
        context = next((each.context for each in self.offer.models if each.id == model), None)
        return self.fingerprint if context is None else f"{self.fingerprint}|{context}"


@dataclass(slots=True, eq=False)
class Node(Watched):
    """A node that has joined at least once, connected or not."""

    unwatched: ClassVar = frozenset({"changes", "borne", "load", "done"})

    node_id: str
    public_key: bytes
    operator: bool = False
    banned: str | None = None
    trusted: bool = False
    operator_drain: bool = False
    reliability: int = 70
    first_seen: float | None = None
    session: Session | None = None
    reported: Reported = field(default_factory=Reported)
    measured: Measured = field(default_factory=Measured)
    health: Health = field(default_factory=Health)
    guard: DuplicateGuard = field(default_factory=DuplicateGuard)
    tally: SkipTally = field(default_factory=SkipTally)
    elsewhere: Elsewhere | None = None
    """Set while another coordinator of the cluster holds its link; this one has no session with it then."""
    changes: int = 0
    """Goes up with every change that is watched: until then nothing of the node is another but its jobs."""
    slots_limit: int = START
    """Slots as far as they are borne out; the claim counts only below it."""
    borne: BorneSlots = field(default_factory=BorneSlots)
    load: Load = field(default_factory=Load)
    """Jobs on its slots at this coordinator, the benchmark's included. The registry tells itself when it counts one."""
    waiting: int = 0
    """Requests that wait for this node and no other."""
    done: int = 0
    """Outcomes within the window: how much its score stands on."""
    left_at: float | None = None
    """When its last session ended, monotonic seconds."""
    left_because: str | None = None
    returned_s: float | None = None
    """Wall time of its return from a long absence: what was measured before is taken again."""
    last_seen_s: float | None = None
    """Wall time at which an earlier coordinator process saw it last."""

    @property
    def connected(self) -> bool:
        """Whether a link is open, here or at another coordinator of the cluster."""
        return self.session is not None or self.elsewhere is not None

    @property
    def slots(self) -> int:
        """Jobs it may run at once: those it offers, as far as it was seen to bear them."""
        return min(self.reported.offer.slots, self.slots_limit)

    @property
    def active(self) -> int:
        """Jobs on its slots at this coordinator now."""
        return self.load.jobs

    @property
    def free(self) -> int:
        """Jobs it could take now."""
        return max(0, self.slots - self.running)

    @property
    def running(self) -> int:
        """Jobs on it now, wherever its link is."""
        return self.load.jobs if self.elsewhere is None else self.elsewhere.running

    @property
    def degraded(self) -> str | None:
        """Why it is not fit for work, `None` when it is."""
        return None if self.health.degraded is None else self.health.degraded.reason

    @property
    def state(self) -> State:
        """Where the node stands, worst news first."""
        return self.state_if(degraded=self.health.degraded is not None)

    def state_if(self, *, degraded: bool) -> State:
        """The state if it were fit for work, or were not, and all else is as it is."""
        session, elsewhere = self.session, self.elsewhere
        return state_of(
            connected=session is not None or elsewhere is not None,
            drains=self.reported.draining or self.operator_drain or (session is not None and session.closing),
            degraded=degraded,
            active=self.load.jobs if elsewhere is None else elsewhere.running,
        )

    def state_view(self, now: float) -> StateView:
        """The state with its reason and the way back from it; `now` in seconds of the monotonic clock."""
        probe_at = self.health.next_probe_at
        return explain_state(
            Facts(
                connected=self.connected,
                banned=self.banned,
                closing=self.session is not None and self.session.closing,
                operator_drains=self.operator_drain,
                node_drains=self.reported.draining,
                degraded=self.degraded,
                active=self.running,
                left_because=self.left_because,
                next_probe_in_s=None if probe_at is None else probe_at - now,
            )
        )

    @property
    def models(self) -> list[str]:
        """The models offered, without those this coordinator refused."""
        if not self.reported.refused:
            return [model.id for model in self.reported.offer.models]
        barred = {refusal.model for refusal in self.reported.refused}
        return [model.id for model in self.reported.offer.models if model.id not in barred]

    def serves(self, model_id: str) -> bool:
        """Whether `models` has it."""
        offered = any(model.id == model_id for model in self.reported.offer.models)
        return offered and not any(refusal.model == model_id for refusal in self.reported.refused)

    @property
    def loaded(self) -> list[str]:
        """The models offered that the node says are in memory now."""
        return [model.id for model in self.reported.offer.models if model.loaded]

    def skipped(self, now: float, reason: str) -> None:
        """Remember that a request passed this node by."""
        self.tally.add(now, reason)

    def skip_counts(self, now: float) -> dict[str, int]:
        """Skips of the last hour by reason, most frequent first."""
        return self.tally.counts(now)

    def public_view(self) -> dict[str, Any]:
        """The node as anybody may see it: claims and measurements side by side, no address, no key."""
        offer, report, measured = self.reported.offer, self.reported.report, self.measured
        best = measured.best
        return {
            "node_id": self.node_id,
            "state": self.state,
            "degraded": self.degraded,
            "operator": self.operator,
            "trusted": self.trusted,
            "region": offer.region,
            "ask_usd_per_1m": offer.ask_usd_per_1m,
            "slots": self.slots,
            "active": self.running,
            "serves": self.models,
            "loaded": self.loaded,
            "refused": [refusal.model_dump() for refusal in self.reported.refused],
            "reliability": self.reliability,
            "outcomes": self.done,
            "suspect": self.health.suspect,
            "basis": measured.basis,
            "compute_class": None if best is None else best.compute_class,
            "measured": {
                "rtt_ms": measured.rtt.rtt_ms,
                "rtt_samples": measured.rtt.samples,
                "slots": {"limit": self.slots_limit, "collapsed": self.borne.collapsed},
                "credited_tok_s": dict(sorted(measured.credited.items())),
                "reported_token_factor": {
                    model: round(factor, 3) for model, factor in sorted(measured.density_factor.items())
                },
                "decode_tok_s": {
                    model: {"median": window.value, "samples": window.samples}
                    for model, window in sorted(measured.decode_tok_s.items())
                },
                "first_output_ms": {
                    model: {"median": window.value, "samples": window.samples}
                    for model, window in sorted(measured.first_output_ms.items())
                },
                "benchmarks": {
                    model: {
                        "tok_s": benchmark.decode_tok_s,
                        "first_output_ms": benchmark.first_output_ms,
                        "compute_class": benchmark.compute_class,
                        "measured_at_s": benchmark.measured_s,
                    }
                    for model, benchmark in sorted(measured.benchmarks.items())
                },
            },
            "reported": {
                "agent_version": self.reported.agent_version,
                "slots": offer.slots,
                "vram_mib": report.vram_mib,
                "gpus": [gpu.model_dump(exclude={"uuid"}) for gpu in report.gpus],
                "engine": report.engine,
                "engine_version": report.engine_version,
                "engines": [engine.model_dump() for engine in self.reported.engines],
            },
        }
