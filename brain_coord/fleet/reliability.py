"""The Brain Reliability Score: pure, from outcomes that the coordinator itself counted.

Nothing that a node says enters it. What never counts (client cancellations, slow readers, 4xx answers, the coordinator's
own outages) is left out by whoever counts; the window is the last 200 outcomes within 7 days.
"""

from dataclasses import dataclass
from math import floor
from typing import Any, Final

from brain_coord.routing.weights import UNTRIED_RELIABILITY

START_SCORE: Final = UNTRIED_RELIABILITY
"""The score without outcomes; it fades as outcomes come in."""

FULL_EVIDENCE: Final = 20
"""With this many outcomes the start score no longer counts."""

COMPLETED_WEIGHT: Final = 0.6
IN_TIME_WEIGHT: Final = 0.2
UPTIME_WEIGHT: Final = 0.2
MISMATCH_PENALTY: Final = 20
CANARY_PENALTY: Final = 30

WINDOW_OUTCOMES: Final = 200
WINDOW_S: Final = 7 * 24 * 3600

_NOISE_DECIMALS: Final = 9
"""Binary fractions may miss an exact half by 1e-14; rounding half up must not depend on that."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What happened on one node within the window.

    Attributes:
        completed: customer jobs, shadow runs and canaries that ended well.
        failed: those that the node failed.
        timed_out: those that it let run out of time.
        uptime_fraction: share of the window (or since the join) that it was connected while the coordinator was up, 0..1.
        matched: shadow runs that agreed with another node.
        mismatched: shadow runs in which it was the one that disagreed.
        canary_passed: canaries answered rightly.
        canary_failed: canaries answered wrongly or not at all.
    """

    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    uptime_fraction: float = 1.0
    matched: int = 0
    mismatched: int = 0
    canary_passed: int = 0
    canary_failed: int = 0

    @property
    def done(self) -> int:
        """How many outcomes there were."""
        return self.completed + self.failed + self.timed_out


@dataclass(frozen=True, slots=True)
class Term:
    """One summand of the score.

    Attributes:
        name: what it stands for.
        points: what it adds or takes.
        because: the counts behind it, in words.
    """

    name: str
    points: float
    because: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The score and the terms that add up to it before clamping and rounding."""

    score: int
    terms: tuple[Term, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; points rounded to 6 decimals."""
        return {
            "score": self.score,
            "terms": [
                {"name": term.name, "points": round(term.points, 6), "because": term.because} for term in self.terms
            ],
        }

    def sentence(self) -> str:
        """`83 = +28.00 start (12 of 20 outcomes) +36.00 completed (12 of 12) …`: the terms that are not 0."""
        parts = [f"{term.points:+.2f} {term.name} ({term.because})" for term in self.terms if term.points]
        return f"{self.score} = {' '.join(parts)}" if parts else f"{self.score}"


def reliability_score(outcomes: Outcomes) -> int:
    """The Brain Reliability Score, 0 to 100."""
    return _rounded(_points(outcomes))


def explain(outcomes: Outcomes) -> Explanation:
    """The score and what each part of it adds or takes."""
    done = outcomes.done
    shadows = outcomes.matched + outcomes.mismatched
    canaries = outcomes.canary_passed + outcomes.canary_failed
    points = _points(outcomes)
    because = (
        ("start", f"{done} of {FULL_EVIDENCE} outcomes"),
        ("completed", f"{outcomes.completed} of {done}"),
        ("in time", f"{outcomes.timed_out} of {done} timed out"),
        ("uptime", f"connected {100 * outcomes.uptime_fraction:.1f} % of the time"),
        ("mismatches", f"{outcomes.mismatched} of {shadows} shadow runs disagreed"),
        ("canaries", f"{outcomes.canary_failed} of {canaries} canaries failed"),
    )
    terms = tuple(Term(name, value, words) for (name, words), value in zip(because, points, strict=True))
    return Explanation(_rounded(points), terms)


def _points(outcomes: Outcomes) -> tuple[float, ...]:
    """The six terms in the order they are told: worked out after every job, while their words are hardly ever read."""
    done = outcomes.done
    evidence = min(1.0, done / FULL_EVIDENCE)
    shadows = outcomes.matched + outcomes.mismatched
    canaries = outcomes.canary_passed + outcomes.canary_failed
    return (
        START_SCORE * (1 - evidence),
        100 * COMPLETED_WEIGHT * _share(outcomes.completed, done) * evidence,
        100 * IN_TIME_WEIGHT * (1 - _share(outcomes.timed_out, done)) * evidence,
        100 * UPTIME_WEIGHT * outcomes.uptime_fraction * evidence,
        0 - MISMATCH_PENALTY * _share(outcomes.mismatched, shadows),
        0 - CANARY_PENALTY * _share(outcomes.canary_failed, canaries),
    )


def _rounded(points: tuple[float, ...]) -> int:
    exact = round(sum(points), _NOISE_DECIMALS)
    return floor(min(100.0, max(0.0, exact)) + 0.5)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
