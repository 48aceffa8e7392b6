"""Deciding again from what a receipt kept.

While every candidate is on the record the replay decides anew. Beyond that it recomputes each kept score and rejection
against the kept pool, and their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from brain_coord.routing.class_router import decide_class
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState
from brain_coord.routing.node_decision import NodeDecision, Pool
from brain_coord.routing.node_router import decide_node, rank, score_node
from brain_coord.routing.reading import Part, SnapshotError
from brain_coord.routing.record import kept_members
from brain_coord.routing.snapshot import read_snapshot


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of recomputing a recorded decision.

    Attributes:
        differences: what came out otherwise, each with its JSON path; empty when the decision is the same.
        complete: every candidate was on the record, so nothing had to be taken on trust.
    """

    differences: tuple[str, ...]
    complete: bool

    @property
    def same(self) -> bool:
        """Whether the recorded decision came out again."""
        return not self.differences


def replay(record: Any) -> Replay:
    """Recompute a record of `routing_record`, possibly read back from JSON.

    Raises:
        SnapshotError: when it is not such a record, naming the JSON path.
    """
    top = Part(record, "$")
    differences: list[str] = []
    complete = True
    if "class" in top:
        part = top.part("class")
        differences += _compare(_replay_class(part), part.raw("decision"), part.at("decision"))
    node = top.part("node")
    if "best" in node:
        # What the other models' best nodes scored is taken on trust; that the pair beats them is not.
        complete = False
        differences += _replay_best(node)
        node = node.part("chosen")
    if "snapshot" in node:
        again, whole = _replay_node(node)
        differences += _compare(again, node.raw("decision"), node.at("decision"))
        complete = complete and whole
    return Replay(tuple(differences), complete)


def _replay_class(part: Part) -> dict[str, Any]:
    snapshot = read_snapshot(part.raw("snapshot"), part.at("snapshot"))
    return decide_class(snapshot.class_request, snapshot.classes or (), snapshot.community_first).to_dict()


def _replay_node(part: Part) -> tuple[dict[str, Any], bool]:
    snapshot = read_snapshot(part.raw("snapshot"), part.at("snapshot"))
    if not snapshot.models:
        raise SnapshotError(part.at("snapshot"), "holds no model")
    request, model, nodes = snapshot.node_request, snapshot.models[0], snapshot.nodes or ()
    if part.count("considered") == len(nodes):
        again = decide_node(request, model, nodes)
        return kept_members(again, again.reason), True
    recorded = part.part("decision")
    again = _redo(request, model, nodes, _pool(recorded.part("pool")))
    # Why nobody could serve counts nodes that are not on the record.
    return kept_members(again, again.reason if again.ranked else recorded.text("reason") or ""), False


def _redo(request: NodeRequest, model: ModelNeed, nodes: Sequence[NodeState], pool: Pool) -> NodeDecision:
    """The decision among the kept nodes, against the pool of all of them."""
    among_kept = decide_node(request, model, nodes)
    scores = (score_node(score.node, request, model, pool) for score in among_kept.ranked)
    return replace(among_kept, pool=_widened(pool, among_kept.pool), ranked=tuple(sorted(scores, key=rank)))


def _pool(part: Part) -> Pool:
    return Pool(part.number("max_tok_s"), part.number("median_rtt_ms"), part.number("highest_ask_usd_per_1m"))


def _widened(pool: Pool, kept: Pool) -> Pool:
    """A pool must reach at least as far as the nodes that are on the record; where it does not, it will differ."""
    return Pool(
        _larger(pool.max_tok_s, kept.max_tok_s),
        pool.median_rtt_ms,
        _larger(pool.highest_ask_usd_per_1m, kept.highest_ask_usd_per_1m),
    )


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _replay_best(part: Part) -> list[str]:
    """The chosen pair must be the first of the best pairs of all models, in catalog order."""
    best = [
        (-(pair.number("total") or 0.0), index, (pair.text("model"), pair.text("node_id")))
        for index, pair in enumerate(part.parts("best"))
    ]
    expected = min(best)[2] if best else (None, None)
    decision = part.part("chosen").part("decision")
    found = (decision.text("model"), decision.text("selected"))
    return [] if expected == found else [f"{decision.at('selected')}: recorded {found}, recomputed {expected}"]


def _compare(again: Any, recorded: Any, path: str) -> list[str]:
    """Where two JSON values differ."""
    if isinstance(again, dict) and isinstance(recorded, dict):
        names = list(again) + [name for name in recorded if name not in again]
        return [fault for name in names for fault in _compare(again.get(name), recorded.get(name), f"{path}.{name}")]
    if isinstance(again, list) and isinstance(recorded, list) and len(again) == len(recorded):
        pairs = enumerate(zip(again, recorded, strict=True))
        return [fault for index, pair in pairs for fault in _compare(*pair, f"{path}[{index}]")]
    return [] if again == recorded else [f"{path}: recorded {recorded!r}, recomputed {again!r}"]
