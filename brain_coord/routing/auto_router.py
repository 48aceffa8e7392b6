"""`brain/auto` on Brain Nodes: the best (node, model) pair over every real model of the catalog."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from brain_coord.routing.inputs import AUTO_MODEL, ModelNeed, NodeRequest, NodeState
from brain_coord.routing.node_decision import (
    ALL_LISTED,
    NodeDecision,
    NodeScore,
    Rejected,
    Unlisted,
    nobody_to_ask,
    unlisted_members,
)
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.once import once
from brain_coord.routing.rejections import NOT_SERVED, rejection_bits, rejection_words
from brain_coord.routing.sentences import no_capacity, shorten_ids
from brain_coord.routing.weights import NAMED_NODES

ANY_REAL_MODEL: Final = ModelNeed("any real model of the catalog")


class Pair(NamedTuple):
    """A node and the model it would answer with."""

    model: ModelNeed
    score: NodeScore

    def sentence(self) -> str:
        """`N-3A4F… with M: score 0.83 = …`."""
        node_id = self.score.node_id
        return f"{shorten_ids([node_id])[node_id]} with {self.model.model_id}: {self.score.sum_in_words()}"


@dataclass(frozen=True)  # without slots: what was worked out once is kept in the instance
class AutoNodeDecision:
    """Which node answers with which model, and why.

    Attributes:
        request: as given.
        decisions: for each real model, in catalog order, the decision among the nodes that serve it.
        ranked: every eligible pair, best first; the next ones are the fallbacks.
        strangers: the nodes that serve no real model, by ascending id.
        considered: how many candidate nodes there were.
        unlisted: what stands for the rest when `ranked` and `nearest` hold only their beginnings.
        nearest: id and reasons of the first rejected nodes; `None` where they follow from the decisions.
    """

    request: NodeRequest
    decisions: tuple[NodeDecision, ...]
    ranked: tuple[Pair, ...]
    strangers: tuple[Rejected, ...]
    considered: int
    unlisted: Unlisted = ALL_LISTED
    nearest: tuple[tuple[str, tuple[str, ...]], ...] | None = None

    @once
    def kept(self) -> dict[str, Any]:
        """A place for what others work out of this decision alone; it lives as long as the decision does."""
        return {}

    @once
    def chosen(self) -> NodeDecision | None:
        """The node decision of the model that was chosen."""
        model = self.model
        return next((each for each in self.decisions if each.model.model_id == model), None)

    @property
    def model(self) -> str | None:
        """Id of the model that was chosen."""
        return self.ranked[0].model.model_id if self.ranked else None

    @once
    def selected(self) -> str | None:
        """Id of the node that takes the request."""
        return self.ranked[0].score.node_id if self.ranked else None

    @once
    def ask_usd_per_1m(self) -> float | None:
        """What the owner of that node asks."""
        return self.ranked[0].score.node.ask_usd_per_1m if self.ranked else None

    @once
    def choices(self) -> tuple[tuple[str, str], ...]:
        """Node and model of every pair that could take the request, best first."""
        return tuple((pair.score.node_id, pair.model.model_id) for pair in self.ranked)

    @once
    def full(self) -> frozenset[str]:
        """Ids of the listed nodes that lack nothing but a free slot, for any of the models."""
        return frozenset[str]().union(*(each.full for each in self.decisions))

    @once
    def worth_waiting(self) -> bool:
        """Whether no pair is eligible and for at least one a free slot is all that is missing."""
        return not self.ranked and any(each.worth_waiting for each in self.decisions)

    @once
    def rejections(self) -> dict[str, list[str]]:
        """For every node that can serve no real model: what is missing for the model it comes nearest to."""
        if self.nearest is not None:
            return {node_id: list(reasons) for node_id, reasons in self.nearest}
        eligible = {pair.score.node_id for pair in self.ranked}
        nearest = {each.node.node_id: (each, ANY_REAL_MODEL) for each in self.strangers}
        for decision in self.decisions:
            for each in decision.rejected:
                best = nearest.get(each.node.node_id)
                if best is None or each.bits.bit_count() < best[0].bits.bit_count():
                    nearest[each.node.node_id] = (each, decision.model)
        return {
            node_id: list(rejection_words(each.bits, each.node, self.request, model))
            for node_id, (each, model) in sorted(nearest.items())
            if node_id not in eligible
        }

    @once
    def reason(self) -> str:
        """One sentence: the score of the pair that was chosen, or why there is none."""
        if self.ranked:
            return self.ranked[0].sentence()
        if not self.decisions:
            return f"0 of {self.considered} nodes can serve {AUTO_MODEL} right now (the catalog has no real model)"
        rejections = list(self.rejections.items())
        rest = Counter(reasons[0] for _, reasons in rejections[NAMED_NODES:])
        rest.update(self.unlisted.first_reasons)
        return no_capacity(AUTO_MODEL, rejections[:NAMED_NODES], rest, nobody=nobody_to_ask(self.request))

    def to_dict(self) -> dict[str, Any]:
        """The whole decision as JSON values; never NaN."""
        members = {
            "model": self.model,
            "selected": self.selected,
            "reason": self.reason,
            "considered": self.considered,
            "pools": {each.model.model_id: each.pool.to_dict() for each in self.decisions},
            "ranked": [{"model": pair.model.model_id, **pair.score.to_dict()} for pair in self.ranked],
            "rejections": self.rejections,
        }
        return members if self.unlisted is ALL_LISTED else {**members, "unlisted": unlisted_members(self.unlisted)}


def decide_auto_node(request: NodeRequest, models: Sequence[ModelNeed], nodes: Iterable[NodeState]) -> AutoNodeDecision:
    """Choose the (node, model) pair with the best NodeScore.

    Ties go to the earlier model of the catalog, then to the lower node id. A mock model is never chosen.

    Args:
        request: as for `decide_node`.
        models: in catalog order, with unique ids.
        nodes: candidates in any order, with unique ids.
    """
    serving: dict[str, list[NodeState]] = {model.model_id: [] for model in models if not model.mock}
    strangers: list[Rejected] = []
    considered = 0
    for node in nodes:
        if request.node is not None and node.node_id != request.node:
            continue
        considered += 1
        served = [serving[model_id] for model_id in node.serves if model_id in serving]
        for each in served:
            each.append(node)
        if not served:
            strangers.append(Rejected(node, rejection_bits(node, request, ANY_REAL_MODEL) | NOT_SERVED))
    decisions = tuple(decide_node(request, model, serving[model.model_id]) for model in models if not model.mock)
    # The sort is stable and each decision is already in order, so equal totals stay in catalog order, then id order.
    pairs = [Pair(decision.model, score) for decision in decisions for score in decision.ranked]
    pairs.sort(key=lambda pair: -pair.score.total)
    strangers.sort(key=lambda each: each.node.node_id)
    return AutoNodeDecision(request, decisions, tuple(pairs), tuple(strangers), considered)
