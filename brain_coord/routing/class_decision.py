"""What the class router answers: every class in order, with its score or its exclusions."""

from dataclasses import dataclass
from typing import Any

from brain_coord.routing.inputs import ClassRequest, ClassState
from brain_coord.routing.once import once
from brain_coord.routing.privacy import is_privacy_conflict, privacy_of
from brain_coord.routing.sentences import number
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, Mode, Privacy, ResourceClass
from brain_coord.routing.weights import CLASS_WEIGHTS


@dataclass(frozen=True, slots=True)
class Penalties:
    """The four penalties of an eligible class before their weights, each 0 to 1; lower is better.

    Attributes:
        unknown: which of them stand on no value and are the mode's penalty instead.
    """

    cost: float
    latency: float
    reliability: float
    quality: float
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class in the decision: a score and its penalties when eligible, exclusions otherwise."""

    state: ClassState
    exclusions: tuple[Exclusion, ...] = ()
    score: float | None = None
    penalties: Penalties | None = None

    @property
    def resource_class(self) -> ResourceClass:
        """Which class this is."""
        return self.state.resource_class


def rank(row: ClassRow) -> tuple[float, int, str]:
    """The order of scores: the lower one first, then more samples, then the name."""
    return row.score or 0.0, -row.state.confidence, row.resource_class


@dataclass(frozen=True)  # without slots: what was worked out once is kept in the instance
class ClassDecision:
    """Which class takes a request, and why. Everything shown of it is a view computed when asked for, once.

    Attributes:
        request: as given.
        policy: the operator's COMMUNITY rule.
        mode: the mode that held.
        rows: the order in which classes are tried, the excluded ones last.
        community_first: whether an eligible Brain Node with a real model was taken first because of COMMUNITY.
    """

    request: ClassRequest
    policy: CommunityFirst
    mode: Mode
    rows: tuple[ClassRow, ...]
    community_first: bool

    @once
    def kept(self) -> dict[str, Any]:
        """A place for what others work out of this decision alone; it lives as long as the decision does."""
        return {}

    @once
    def privacy(self) -> Privacy:
        """The level that held."""
        return privacy_of(self.request)

    @once
    def ranked(self) -> tuple[ResourceClass, ...]:
        """The eligible classes, in the order in which they are tried."""
        return tuple(row.resource_class for row in self.rows if not row.exclusions)

    @once
    def fallback(self) -> tuple[ResourceClass, ...]:
        """The same once a target has failed. COMMUNITY takes one Brain Node first: behind it stands the order of scores."""
        return tuple(row.resource_class for row in sorted((row for row in self.rows if not row.exclusions), key=rank))

    @once
    def selected(self) -> ResourceClass | None:
        """The class that takes the request."""
        return next(iter(self.ranked), None)

    @once
    def usable(self) -> tuple[ResourceClass, ...]:
        """The classes that the request may use, be it that they lack capacity now, in the same order."""
        return tuple(row.resource_class for row in self.rows if row.exclusions in ((), (Exclusion.UNAVAILABLE,)))

    @once
    def privacy_conflict(self) -> bool:
        """Whether the request contradicts itself (`400 privacy_conflict`)."""
        return is_privacy_conflict(self.request, (row.state for row in self.rows))

    @once
    def exclusions(self) -> dict[ResourceClass, tuple[Exclusion, ...]]:
        """Codes of every excluded class, in the published order."""
        return {row.resource_class: row.exclusions for row in self.rows if row.exclusions}

    @once
    def reason(self) -> str:
        """One sentence: the score of the class that was chosen, or why there is none."""
        if self.selected is not None:
            return f"{self.label}: {self._score_sentence(self.rows[0])}"
        if self.privacy_conflict:
            return f"no class that {self.privacy} allows serves this model ({self._exclusion_sentence()})"
        return f"no class can take this request ({self._exclusion_sentence()})"

    @once
    def label(self) -> str:
        """`NATIVE_NETWORK (COMMUNITY)`: the class that was chosen and the mode that held."""
        return f"{self.selected} ({self.mode})"

    def to_dict(self) -> dict[str, Any]:
        """The whole decision as JSON values; never NaN."""
        scored = [(str(row.resource_class), row.penalties) for row in self.rows if row.penalties is not None]
        return {
            "mode": str(self.mode),
            "requested_mode": str(self.request.mode),
            "privacy": str(self.privacy),
            "privacy_conflict": self.privacy_conflict,
            "selected": None if self.selected is None else str(self.selected),
            "community_first": self.community_first,
            "reason": self.reason,
            "order": [str(row.resource_class) for row in self.rows],
            "scores": {str(row.resource_class): row.score for row in self.rows},
            "penalties": {
                name: {"cost": p.cost, "latency": p.latency, "reliability": p.reliability, "quality": p.quality}
                for name, p in scored
            },
            "unknown": {name: list(p.unknown) for name, p in scored if p.unknown},
            "exclusions": {str(name): [str(code) for code in codes] for name, codes in self.exclusions.items()},
        }

    def _score_sentence(self, row: ClassRow) -> str:
        weights, penalties = CLASS_WEIGHTS[self.mode], row.penalties
        assert penalties is not None
        assert row.score is not None
        parts = [
            f"{weight:.2f}·{name}{' UNKNOWN' if name in penalties.unknown else ''} {number(penalty)}"
            for weight, name, penalty in (
                (weights.cost, "cost", penalties.cost),
                (weights.latency, "latency", penalties.latency),
                (weights.reliability, "reliability", penalties.reliability),
                (weights.quality, "quality", penalties.quality),
            )
        ]
        first = "a Brain Node is taken first; " if self.community_first else ""
        return f"{first}score {number(row.score)} = {' + '.join(parts)} (lower is better)"

    def _exclusion_sentence(self) -> str:
        rows = [f"{row.resource_class}: {', '.join(row.exclusions)}" for row in self.rows]
        return "; ".join(rows) or "no class is configured"
