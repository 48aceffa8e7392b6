"""What the node router answers: the pool it compared against, each node's terms, and why the others were rejected."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from brain_coord.routing import weights
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState
from brain_coord.routing.once import once
from brain_coord.routing.rejections import NO_FREE_SLOT, rejection_words
from brain_coord.routing.sentences import most_frequent, no_capacity, shorten_ids, weighted_sum

# Notes as bits, because most decisions are never read.
MODEL_NOT_LOADED: Final = 1 << 0
SPEED_UNMEASURED: Final = 1 << 1
RTT_UNMEASURED: Final = 1 << 2
NO_ASK_SET: Final = 1 << 3
NOTES: Final = ("model not loaded", "speed unmeasured", "rtt unmeasured", "no ask set")


@dataclass(frozen=True, slots=True)
class Pool:
    """What the eligible nodes of one decision are compared against; `None` where no eligible node has a value.

    Attributes:
        max_tok_s: the fastest known decode speed for the model.
        median_rtt_ms: median of the known round trips.
        highest_ask_usd_per_1m: the dearest ask.
    """

    max_tok_s: float | None = None
    median_rtt_ms: float | None = None
    highest_ask_usd_per_1m: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a receipt stores it."""
        return {
            "max_tok_s": self.max_tok_s,
            "median_rtt_ms": self.median_rtt_ms,
            "highest_ask_usd_per_1m": self.highest_ask_usd_per_1m,
        }


class NodeScore(NamedTuple):
    """NodeScore of one eligible node: the total, and the five terms before their weights, each 0 to 1."""

    node: NodeState
    total: float
    capability: float
    availability: float
    latency: float
    reputation: float
    price: float
    note_bits: int

    @property
    def node_id(self) -> str:
        """The node's full id."""
        return self.node.node_id

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not known or not ideal, in a fixed order."""
        return tuple(note for bit, note in enumerate(NOTES) if self.note_bits >> bit & 1)

    def to_dict(self) -> dict[str, Any]:
        """As `brain-coord route --json` and a receipt show it."""
        return {
            "node_id": self.node.node_id,
            "total": self.total,
            "capability": self.capability,
            "availability": self.availability,
            "latency": self.latency,
            "reputation": self.reputation,
            "price": self.price,
            "notes": list(self.notes),
        }

    def sentence(self) -> str:
        """`N-3A4F…: score 0.83 = 0.30·capability 1.0 + … (no ask set)`."""
        return f"{shorten_ids([self.node_id])[self.node_id]}: {self.sum_in_words()}"

    def sum_in_words(self) -> str:
        """The same without the node's name."""
        terms = weighted_sum(
            self.total,
            [
                (weights.CAPABILITY_WEIGHT, "capability", self.capability),
                (weights.AVAILABILITY_WEIGHT, "availability", self.availability),
                (weights.LATENCY_WEIGHT, "latency", self.latency),
                (weights.REPUTATION_WEIGHT, "reputation", self.reputation),
                (weights.PRICE_WEIGHT, "price", self.price),
            ],
        )
        return f"{terms} ({', '.join(self.notes)})" if self.note_bits else terms


class Rejected(NamedTuple):
    """A candidate that cannot take the request, and why as bits of `rejections`."""

    node: NodeState
    bits: int


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Candidates that a decision among very many counted, but does not hold one by one.

    Attributes:
        ranked: how many eligible ones come after the listed.
        rejected: how many rejected ones come after the listed, by id.
        reasons: of those rejected ones, how many each reason keeps away; left empty while somebody is eligible.
        first_reasons: the same, counting only the first reason of each.
        worth_waiting: whether a free slot is all that one of them lacks.
    """

    ranked: int = 0
    rejected: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    first_reasons: Mapping[str, int] = field(default_factory=dict)
    worth_waiting: bool = False


ALL_LISTED: Final = Unlisted()


@dataclass(frozen=True)  # without slots: what was worked out once is kept in the instance
class NodeDecision:
    """Which node takes a request for one model, and why. Everything shown of it is a view computed when asked for, once.

    Attributes:
        request: as given.
        model: as given.
        pool: what the eligible were compared against.
        ranked: the eligible, best first; the first is selected, the next ones are the fallbacks.
        rejected: all other candidates, by ascending id.
        unlisted: what stands for the rest when the two lists hold only their beginnings.
    """

    request: NodeRequest
    model: ModelNeed
    pool: Pool
    ranked: tuple[NodeScore, ...]
    rejected: tuple[Rejected, ...]
    unlisted: Unlisted = ALL_LISTED

    @once
    def kept(self) -> dict[str, Any]:
        """A place for what others work out of this decision alone; it lives as long as the decision does."""
        return {}

    @once
    def selected(self) -> str | None:
        """Id of the node that takes the request."""
        return self.ranked[0].node_id if self.ranked else None

    @once
    def ask_usd_per_1m(self) -> float | None:
        """What the owner of that node asks."""
        return self.ranked[0].node.ask_usd_per_1m if self.ranked else None

    @once
    def choices(self) -> tuple[tuple[str, str], ...]:
        """Node and model of everyone that could take the request, best first."""
        return tuple((score.node_id, self.model.model_id) for score in self.ranked)

    @once
    def eligible(self) -> int:
        """How many candidates could take the request."""
        return len(self.ranked) + self.unlisted.ranked

    @once
    def considered(self) -> int:
        """How many candidates there were."""
        return self.eligible + len(self.rejected) + self.unlisted.rejected

    @once
    def full(self) -> frozenset[str]:
        """Ids of the listed candidates that lack nothing but a free slot."""
        return frozenset(each.node.node_id for each in self.rejected if each.bits == NO_FREE_SLOT)

    @once
    def worth_waiting(self) -> bool:
        """Whether nobody is eligible and for at least one node a free slot is all that is missing."""
        return not self.ranked and (self.unlisted.worth_waiting or bool(self.full))

    @property
    def rejections(self) -> dict[str, list[str]]:
        """Reasons of every rejected candidate that is listed in the published order, by ascending id."""
        return {each.node.node_id: list(self._words(each)) for each in self.rejected}

    @once
    def reason(self) -> str:
        """One sentence: the score of the node that was chosen, or why there is none."""
        if self.ranked:
            return self.ranked[0].sentence()
        named = [(each.node.node_id, self._words(each)) for each in self.rejected[: weights.NAMED_NODES]]
        rest = Counter(next(self._words(each)) for each in self.rejected[weights.NAMED_NODES :])
        rest.update(self.unlisted.first_reasons)
        return no_capacity(self.model.model_id, named, rest, nobody=nobody_to_ask(self.request))

    def to_dict(self) -> dict[str, Any]:
        """The whole decision as JSON values; never NaN."""
        members = {
            "model": self.model.model_id,
            "selected": self.selected,
            "reason": self.reason,
            "considered": self.considered,
            "pool": self.pool.to_dict(),
            "ranked": [score.to_dict() for score in self.ranked],
            "rejections": self.rejections,
        }
        return members if self.unlisted is ALL_LISTED else {**members, "unlisted": unlisted_members(self.unlisted)}

    def _words(self, each: Rejected) -> Iterator[str]:
        return rejection_words(each.bits, each.node, self.request, self.model)


def unlisted_members(unlisted: Unlisted) -> dict[str, Any]:
    """How many more there were, as JSON values."""
    return {
        "ranked": unlisted.ranked,
        "rejected": unlisted.rejected,
        "reasons": dict(most_frequent(unlisted.reasons)),
    }


def nobody_to_ask(request: NodeRequest) -> str:
    """What a no-capacity sentence says when there was no candidate at all."""
    return "no node has joined" if request.node is None else f"{request.node} has not joined"
