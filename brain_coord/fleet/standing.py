"""What a node's reliability stands on: its outcomes within the window and the share of time it was connected."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, Protocol

from brain_coord.fleet.reliability import WINDOW_OUTCOMES, WINDOW_S, Explanation, Outcomes, explain
from brain_coord.store.records import Outcome, Uptime

DAY_S: Final = 24 * 3600.0

_DONE: Final = frozenset({"customer", "shadow", "canary"})
"""Kinds of work that count towards done; the join benchmark is kept apart."""


class Past(Protocol):
    """Where outcomes and uptime of earlier sessions are read from."""

    async def load_outcomes(self, node_id: str, since_s: float, limit: int = WINDOW_OUTCOMES) -> list[Outcome]:
        """The latest outcomes since a time, oldest first."""

    async def load_uptime(self, since_day: int, node_id: str | None = None) -> list[Uptime]:
        """Connection time by day since a day."""


@dataclass(slots=True)
class Standing:
    """One node's outcomes and uptime. Times are wall clock, seconds since 1970; only ages are derived from them."""

    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=WINDOW_OUTCOMES))
    days: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Connected and observed seconds by UTC day."""

    @classmethod
    async def load(cls, past: Past, node_id: str, now_s: float) -> "Standing":
        """The standing as the store remembers it."""
        standing = cls()
        standing.outcomes.extend(await past.load_outcomes(node_id, now_s - WINDOW_S))
        for day in await past.load_uptime(int((now_s - WINDOW_S) // DAY_S), node_id):
            standing.observed(day.day, day.connected_s, day.observed_s)
        return standing

    def add(self, outcome: Outcome) -> None:
        """One more outcome; the oldest beyond the window falls out."""
        self.outcomes.append(outcome)

    def observed(self, day: int, connected_s: float, observed_s: float) -> None:
        """The coordinator was up for `observed_s` of a day, and the node connected for `connected_s` of that."""
        before = self.days.get(day, (0.0, 0.0))
        self.days[day] = (before[0] + connected_s, before[1] + observed_s)

    def uptime_fraction(self, now_s: float) -> float:
        """Share of the observed time of the window in which the node was connected; 1 before any was observed."""
        first = int((now_s - WINDOW_S) // DAY_S)
        recent = [seconds for day, seconds in self.days.items() if day >= first]
        observed = sum(seconds[1] for seconds in recent)
        return min(1.0, sum(seconds[0] for seconds in recent) / observed) if observed > 0 else 1.0

    def counts(self, now_s: float) -> Outcomes:
        """The counts that the score is made of."""
        kinds: Counter[tuple[str, str]] = Counter()
        for outcome in self.outcomes:
            if outcome.at_s >= now_s - WINDOW_S:
                kinds[outcome.kind if outcome.kind in _DONE else "other", outcome.result] += 1

        def done(result: str) -> int:
            return sum(kinds[kind, result] for kind in _DONE)

        return Outcomes(
            completed=done("completed"),
            failed=done("failed"),
            timed_out=done("timed_out"),
            uptime_fraction=self.uptime_fraction(now_s),
            matched=kinds["other", "matched"],
            mismatched=kinds["other", "mismatched"],
            canary_passed=kinds["canary", "completed"],
            canary_failed=kinds["canary", "failed"] + kinds["canary", "timed_out"],
        )

    def explain(self, now_s: float) -> Explanation:
        """The score, term by term."""
        return explain(self.counts(now_s))

    def score(self, now_s: float) -> int:
        """The Brain Reliability Score, 0 to 100."""
        return self.explain(now_s).score
