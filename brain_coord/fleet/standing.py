"""What a node's reliability stands on: its outcomes within the window and the share of time it was connected."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from brain_coord.fleet.reliability import WINDOW_OUTCOMES, WINDOW_S, Explanation, Outcomes, explain, reliability_score
from brain_coord.store.records import Outcome, Uptime

DAY_S: Final = 24 * 3600.0

RECALLED: Final = 3 * WINDOW_OUTCOMES
"""Outcomes read back at a start: those that are done, comparisons, and benchmarks, which count for neither."""

_DONE: Final = frozenset({"completed", "failed", "timed_out"})
_COMPARED: Final = frozenset({"matched", "mismatched"})


@dataclass(slots=True)
class Standing:
    """One node's outcomes and uptime. Times are wall clock, seconds since 1970; only ages are derived from them.

    Customer jobs, shadow runs and canaries are done work; the comparisons that shadow runs lead to are counted beside
    them; the join benchmark is kept apart from both.
    """

    done: deque[Outcome] = field(default_factory=deque)
    compared: deque[Outcome] = field(default_factory=deque)
    days: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Connected and observed seconds by UTC day."""
    _kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Counted along, so that a score costs the same however many outcomes it stands on."""
    _scored: int | None = None
    """The last score, while nothing that it was made of has changed."""
    _holds_until_s: float = 0.0
    """When an outcome or a day may leave the window, and the last score no longer holds."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], days: Iterable[Uptime]) -> "Standing":
        """The standing that remembered outcomes (oldest first) and days make."""
        standing = cls()
        for outcome in outcomes:
            standing.add(outcome)
        for day in days:
            standing.observed(day.day, day.connected_s, day.observed_s)
        return standing

    def add(self, outcome: Outcome) -> bool:
        """One more outcome; the oldest beyond the window falls out. Whether the score may be another by it."""
        result, kind = outcome.result, outcome.kind
        kept = self.done if result in _DONE else self.compared if result in _COMPARED else None
        if kept is None or kind == "benchmark":
            return False
        kept.append(outcome)
        if len(kept) > WINDOW_OUTCOMES:
            gone = kept.popleft()
            if gone.result == result and gone.kind == kind:
                return False  # one like it takes its place: in a full window in which nothing fails, the score stays
            self._count(gone, -1)
        self._count(outcome, 1)
        return True

    def _count(self, outcome: Outcome, number: int) -> None:
        self._kinds[outcome.kind, outcome.result] += number
        self._scored = None

    def _expire(self, now_s: float) -> None:
        for kept in (self.done, self.compared):
            while kept and kept[0].at_s < now_s - WINDOW_S:
                self._count(kept.popleft(), -1)

    def observed(self, day: int, connected_s: float, observed_s: float) -> None:
        """The coordinator was up for `observed_s` of a day, and the node connected for `connected_s` of that."""
        before = self.days.get(day)
        if before is None:
            before = (0.0, 0.0)
            for old in [each for each in self.days if each < day - WINDOW_S // DAY_S]:
                del self.days[old]
        self.days[day] = (before[0] + connected_s, before[1] + observed_s)
        self._scored = None

    def uptime_fraction(self, now_s: float) -> float:
        """Share of the observed time of the window in which the node was connected; 1 before any was observed."""
        first = _first_day(now_s)
        recent = [seconds for day, seconds in self.days.items() if day >= first]
        observed = sum(seconds[1] for seconds in recent)
        return min(1.0, sum(seconds[0] for seconds in recent) / observed) if observed > 0 else 1.0

    def counts(self, now_s: float) -> Outcomes:
        """The counts that the score is made of."""
        self._expire(now_s)
        totals: Counter[str] = Counter()
        for (_, result), count in self._kinds.items():
            totals[result] += count
        return Outcomes(
            completed=totals["completed"],
            failed=totals["failed"],
            timed_out=totals["timed_out"],
            uptime_fraction=self.uptime_fraction(now_s),
            matched=totals["matched"],
            mismatched=totals["mismatched"],
            canary_passed=self._kinds["canary", "completed"],
            canary_failed=self._kinds["canary", "failed"] + self._kinds["canary", "timed_out"],
        )

    def explain(self, now_s: float) -> Explanation:
        """The score, term by term."""
        return explain(self.counts(now_s))

    def score(self, now_s: float) -> int:
        """The Brain Reliability Score, 0 to 100."""
        if self._scored is None or now_s >= self._holds_until_s:
            self._scored = reliability_score(self.counts(now_s))
            leave = [(_first_day(now_s) + 1) * DAY_S, *(kept[0].at_s for kept in (self.done, self.compared) if kept)]
            self._holds_until_s = min(leave) + WINDOW_S
        return self._scored


def _first_day(now_s: float) -> int:
    """The oldest day of the window."""
    return int((now_s - WINDOW_S) // DAY_S)
