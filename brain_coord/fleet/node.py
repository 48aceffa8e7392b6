"""One node as the coordinator knows it: claims, measurements and the session that is open, kept apart."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from brain_coord.fleet.duplicates import DuplicateGuard
from brain_coord.measure.rtt import RttEstimator
from brain_coord.measure.speed import MedianWindow
from brain_coord.store.records import Benchmark
from brain_node.contract.messages import EngineClaim, GpuClaim, Message, Offer, Refusal, Report

State = Literal["ONLINE", "BUSY", "DEGRADED", "DRAINING", "OFFLINE"]
Basis = Literal["unmeasured", "coordinator-timed"]

SKIP_WINDOW_S: Final = 3600.0


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
class Session:
    """One open link of a node. Times in seconds of the monotonic clock."""

    session_id: str
    link: LinkSender
    slots: SlotPool
    ticket: str
    address: str
    joined_at: float
    last_heard: float
    closing: bool = False


@dataclass(slots=True)
class Measured:
    """What the coordinator's own clock saw of one node; the only figures that can raise its rank."""

    rtt: RttEstimator = field(default_factory=RttEstimator)
    decode_tok_s: dict[str, MedianWindow] = field(default_factory=dict)
    first_output_ms: dict[str, MedianWindow] = field(default_factory=dict)
    benchmarks: dict[str, Benchmark] = field(default_factory=dict)

    @property
    def basis(self) -> Basis:
        """Whether the node has produced a token that the coordinator timed."""
        return "coordinator-timed" if self.benchmarks or self.decode_tok_s else "unmeasured"

    def learn(self, model: str, tok_s: float | None, first_output_ms: float | None) -> None:
        """Take in the timings of one completed stream."""
        if tok_s is not None:
            self.decode_tok_s.setdefault(model, MedianWindow()).add(tok_s)
        if first_output_ms is not None:
            self.first_output_ms.setdefault(model, MedianWindow()).add(first_output_ms)

    @property
    def best(self) -> Benchmark | None:
        """The fastest join benchmark over all models."""
        return max(self.benchmarks.values(), key=lambda each: each.decode_tok_s, default=None)


@dataclass(slots=True)
class Reported:
    """What the node said of itself; it can only exclude the node."""

    report: Report = field(default_factory=Report)
    offer: Offer = field(default_factory=Offer)
    refused: tuple[Refusal, ...] = ()
    telemetry: tuple[GpuClaim, ...] = ()
    engines: tuple[EngineClaim, ...] = ()
    agent_version: str | None = None
    draining: bool = False

    @property
    def fingerprint(self) -> str:
        """What a benchmark stands on: engine, cards and memory. A change asks for a new one."""
        cards = sorted(f"{gpu.name}:{gpu.total_bytes}" for gpu in self.report.gpus if gpu.state == "ok")
        return f"{self.report.engine}/{self.report.engine_version}|{self.report.cpu_count}|{','.join(cards)}"


@dataclass(slots=True, eq=False)
class Node:
    """A node that has joined at least once, connected or not."""

    node_id: str
    public_key: bytes
    operator: bool = False
    banned: str | None = None
    trusted: bool = False
    operator_drain: bool = False
    degraded: str | None = None
    reliability: int = 70
    first_seen: float | None = None
    session: Session | None = None
    reported: Reported = field(default_factory=Reported)
    measured: Measured = field(default_factory=Measured)
    guard: DuplicateGuard = field(default_factory=DuplicateGuard)
    active: int = 0
    """Jobs the coordinator has on this node now, the benchmark's included."""
    waiting: int = 0
    """Requests that wait for this node and no other."""
    skips: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=10_000))

    @property
    def connected(self) -> bool:
        """Whether a link is open."""
        return self.session is not None

    @property
    def slots(self) -> int:
        """Jobs the node offers to run at once."""
        return self.reported.offer.slots

    @property
    def free(self) -> int:
        """Jobs it could take now."""
        return max(0, self.slots - self.active)

    @property
    def state(self) -> State:
        """Where the node stands, worst news first."""
        if self.session is None:
            return "OFFLINE"
        if self.reported.draining or self.operator_drain or self.session.closing:
            return "DRAINING"
        if self.degraded is not None:
            return "DEGRADED"
        return "BUSY" if self.active else "ONLINE"

    @property
    def models(self) -> list[str]:
        """The models offered, without those this coordinator refused."""
        barred = {refusal.model for refusal in self.reported.refused}
        return [model.id for model in self.reported.offer.models if model.id not in barred]

    @property
    def loaded(self) -> list[str]:
        """The models offered that are in memory now."""
        return [model.id for model in self.reported.offer.models if model.loaded]

    def skipped(self, now: float, reason: str) -> None:
        """Remember that a request passed this node by."""
        self.skips.append((now, reason))

    def skip_counts(self, now: float) -> dict[str, int]:
        """Skips of the last hour by reason, most frequent first."""
        counts: dict[str, int] = {}
        for at, reason in self.skips:
            if at >= now - SKIP_WINDOW_S:
                counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def public_view(self) -> dict[str, Any]:
        """The node as anybody may see it: claims and measurements side by side, no address, no key."""
        offer, report, measured = self.reported.offer, self.reported.report, self.measured
        best = measured.best
        return {
            "node_id": self.node_id,
            "state": self.state,
            "operator": self.operator,
            "region": offer.region,
            "ask_usd_per_1m": offer.ask_usd_per_1m,
            "slots": offer.slots,
            "active": self.active,
            "serves": self.models,
            "loaded": self.loaded,
            "refused": [refusal.model_dump() for refusal in self.reported.refused],
            "reliability": self.reliability,
            "basis": measured.basis,
            "compute_class": None if best is None else best.compute_class,
            "measured": {
                "rtt_ms": measured.rtt.rtt_ms,
                "rtt_samples": measured.rtt.samples,
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
                "vram_mib": report.vram_mib,
                "gpus": [gpu.model_dump(exclude={"uuid"}) for gpu in report.gpus],
                "engine": report.engine,
                "engine_version": report.engine_version,
                "engines": [engine.model_dump() for engine in self.reported.engines],
            },
        }
