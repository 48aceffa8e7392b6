"""Whether a node is fit for work: pure, fed with what happened and with `now` in seconds of the monotonic clock.

A node becomes DEGRADED by what the coordinator saw, never by what it says, and comes back by answering canaries: the first
after 5 minutes, each failed one doubling the wait up to an hour. A disconnect, a reconnect or a new name changes nothing here.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from brain_coord.fleet.watched import Watched

FAULTS: Final = 5
"""Faults in a row (jobs failed or timed out by the node's doing) after which it is DEGRADED."""

CANARIES: Final = 3
"""Canaries in a row answered wrongly or not at all after which it is DEGRADED. An honest model errs now and then; the
second and third follow soon after the first."""

COMPARED: Final = 12
MISMATCHES: Final = 8
"""Of the last 12 settled comparisons with peers, 8 in which this node was the one that was wrong make it DEGRADED. Engines
that are busy round differently: a small model differed from *itself* in 5 of 100 comparisons, so a few prove nothing."""

DOUBTED: Final = ((2, 3), (4, 12))
"""2 of the last 3 comparisons lost, or 4 of the last 12, or one failed canary: the node is looked at more often."""

BENCHMARKS: Final = 3
"""Benchmarks in a row that failed."""

EMPTY: Final = 3
"""Answers in a row with nothing in them after which a node is asked something soon."""

FIRST_PROBE_S: Final = 300.0
MAX_PROBE_S: Final = 3600.0
NEXT_PASS_S: Final = 60.0
"""Between the canaries of one way back."""

CALM_S: Final = 3600.0
"""A node that falls again within this time of its return waits as long as it did last, and longer."""

Cause = Literal["faults", "canaries", "mismatches", "benchmark"]

PASSES: Final[dict[Cause, int]] = {"faults": 1, "benchmark": 1, "canaries": 2, "mismatches": 3}
"""Canaries in a row that lead back, by what led away; after mismatches they are comparisons with a peer."""


@dataclass(frozen=True, slots=True)
class Degradation:
    """Why a node is DEGRADED, and since when."""

    cause: Cause
    reason: str
    since: float


@dataclass(slots=True)
class Health(Watched):
    """One node's recent faults, and its way back. Each method returns whether fitness changed."""

    faults_in_row: int = 0
    canaries_failed_in_row: int = 0
    benchmarks_failed_in_row: int = 0
    empty_in_row: int = 0
    compared: deque[bool] = field(default_factory=lambda: deque(maxlen=COMPARED))
    """Settled comparisons with peers, `True` for agreed."""
    degraded: Degradation | None = None
    next_probe_at: float | None = None
    """When the next canary of the way back is due."""
    passes: int = 0
    _wait_s: float = FIRST_PROBE_S
    _returned_at: float | None = None

    @property
    def watched(self) -> bool:
        """Whether there is reason to look closer; it costs the node nothing and is no mark on it."""
        return self.canaries_failed_in_row > 0 or self.doubted

    @property
    def doubted(self) -> bool:
        """Whether so many of its latest comparisons were lost that more of them are wanted."""
        latest = list(self.compared)
        return any(sum(not agreed for agreed in latest[-of:]) >= lost for lost, of in DOUBTED)

    @property
    def suspect(self) -> bool:
        """Whether its answers were found to be wrong, so that it gets no work until it has shown otherwise."""
        return self.degraded is not None and self.degraded.cause in ("canaries", "mismatches")

    @property
    def mismatches(self) -> int:
        """Lost comparisons among the recent ones."""
        return sum(not agreed for agreed in self.compared)

    def job(self, result: str, now: float) -> bool:
        """A job ended as `completed`, `failed` or `timed_out`, a canary's job included."""
        if result == "completed":
            if self.faults_in_row or self.empty_in_row:
                self.faults_in_row = self.empty_in_row = 0
            return False
        self.faults_in_row += 1
        if self.faults_in_row < FAULTS:
            return False
        return self._degrade("faults", f"{self.faults_in_row} jobs in a row failed", now)

    def empty(self) -> bool:
        """A job ended well and brought nothing; whether the node should be asked something soon."""
        self.empty_in_row += 1
        return self.empty_in_row >= EMPTY

    def canary(self, *, passed: bool, now: float) -> bool:
        """A canary was answered rightly, or not."""
        self.canaries_failed_in_row = 0 if passed else self.canaries_failed_in_row + 1
        if self.degraded is not None:
            return self.degraded.cause != "mismatches" and self._probed(passed=passed, now=now)
        if self.canaries_failed_in_row < CANARIES:
            return False
        return self._degrade("canaries", f"{self.canaries_failed_in_row} canaries in a row failed", now)

    def comparison(self, *, agreed: bool, now: float) -> bool:
        """A comparison with peers was settled: it agreed with the majority, or was the one that did not."""
        self.compared.append(agreed)
        if self.degraded is not None:
            return self.degraded.cause == "mismatches" and self._probed(passed=agreed, now=now)
        if agreed or self.mismatches < MISMATCHES:
            return False
        reason = f"{self.mismatches} of the last {len(self.compared)} comparisons with its peers were lost"
        return self._degrade("mismatches", reason, now)

    def stand_in(self, *, passed: bool, now: float) -> bool:
        """A canary in place of a comparison, for a node that no peer is left to be compared with."""
        return (
            self.degraded is not None and self.degraded.cause == "mismatches" and self._probed(passed=passed, now=now)
        )

    def benchmark(self, *, passed: bool, cause: str, now: float) -> bool:
        """A benchmark of ours was measured, or failed."""
        self.benchmarks_failed_in_row = 0 if passed else self.benchmarks_failed_in_row + 1
        if self.degraded is not None:
            return self.degraded.cause == "benchmark" and passed and self._probed(passed=True, now=now)
        if self.benchmarks_failed_in_row < BENCHMARKS:
            return False
        return self._degrade("benchmark", f"{self.benchmarks_failed_in_row} benchmarks in a row failed ({cause})", now)

    def _degrade(self, cause: Cause, reason: str, now: float) -> bool:
        if self.degraded is not None:
            return False
        if self._returned_at is None or now - self._returned_at > CALM_S:
            self._wait_s = FIRST_PROBE_S
        self.degraded = Degradation(cause, reason, now)
        self.passes = 0
        self.next_probe_at = now + self._wait_s
        self._wait_s = min(MAX_PROBE_S, self._wait_s * 2)
        return True

    def _probed(self, *, passed: bool, now: float) -> bool:
        assert self.degraded is not None
        if not passed:
            self.passes = 0
            self.next_probe_at = now + self._wait_s
            self._wait_s = min(MAX_PROBE_S, self._wait_s * 2)
            return False
        self.passes += 1
        if self.passes < PASSES[self.degraded.cause]:
            self.next_probe_at = now + NEXT_PASS_S
            return False
        self.degraded, self.next_probe_at = None, None
        self.faults_in_row = self.canaries_failed_in_row = self.benchmarks_failed_in_row = 0
        self.compared.clear()
        self._returned_at = now
        return True

    def unanswered_probe(self, now: float) -> None:
        """A canary of the way back could not be given (no peer, no slot): try again later, held against nobody."""
        if self.degraded is not None:
            self.next_probe_at = now + NEXT_PASS_S

    @classmethod
    def recalled(cls, events: Iterable[tuple[float, str, str]]) -> "Health":
        """The health that remembered outcomes lead to: a coordinator's restart forgives nothing.

        Args:
            events: `(monotonic seconds, kind, result)` of outcomes as the store has them, oldest first.
        """
        health = cls()
        for at, kind, result in events:
            if result in ("matched", "mismatched"):
                health.comparison(agreed=result == "matched", now=at)
            elif kind == "canary":
                health.canary(passed=result == "completed", now=at)
            elif kind == "benchmark":
                health.benchmark(passed=result == "completed", cause="remembered", now=at)
            else:
                health.job(result, at)
        return health
