"""What a receipt keeps of a routing decision, and the replay of the decision from that alone.

A class decision has at most four rows and is kept whole. A node decision may have looked at ten thousand nodes: kept are
the inputs of the best and of the first rejected, and the pool that they were compared against. While that is every
candidate the replay decides anew; beyond it, it recomputes each kept score and rejection, and their order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.dry_run import Routing
from brain_coord.routing.inputs import ClassRequest, ClassState, ModelNeed, NodeRequest, NodeState
from brain_coord.routing.node_decision import NodeDecision, Pool, Rejected
from brain_coord.routing.node_router import decide_node, pool_of, rank, score_node
from brain_coord.routing.reading import Part
from brain_coord.routing.rejections import rejection_bits
from brain_coord.routing.snapshot import read_snapshot
from brain_coord.routing.vocabulary import CommunityFirst

NODES_KEPT: Final = 10
"""How many ranked and how many rejected nodes a record keeps."""


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


def routing_record(routing: Routing, keep: int = NODES_KEPT) -> dict[str, Any]:
    """What a receipt keeps: JSON values that `replay` understands."""
    chosen, node = routing.class_decision, routing.node_decision
    record: dict[str, Any] = {"class": None if chosen is None else _class_record(chosen)}
    if isinstance(node, AutoNodeDecision):
        record["node"] = _auto_record(node, keep)
    else:
        record["node"] = None if node is None else _node_record(node, keep)
    return record


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
    if "node" in top:
        part = top.part("node")
        if "best" in part:
            differences += _replay_best(part)
            part, complete = part.part("chosen"), False
        again, whole = _replay_node(part)
        differences += _compare(again, part.raw("decision"), part.at("decision"))
        complete = complete and whole
    return Replay(tuple(differences), complete)


def _class_record(decision: ClassDecision) -> dict[str, Any]:
    states = (row.state for row in decision.rows)
    return {
        "snapshot": class_snapshot(decision.request, decision.policy, states),
        "decision": decision.to_dict(),
    }


def _replay_class(part: Part) -> dict[str, Any]:
    snapshot = read_snapshot(part.raw("snapshot"), part.at("snapshot"))
    return decide_class(snapshot.class_request, snapshot.classes or (), snapshot.community_first).to_dict()


def _node_record(decision: NodeDecision, keep: int) -> dict[str, Any]:
    ranked, rejected = decision.ranked[:keep], decision.rejected[:keep]
    nodes = [score.node for score in ranked] + [each.node for each in rejected]
    whole = len(nodes) == decision.considered
    kept = NodeDecision(decision.request, decision.model, decision.pool, ranked, rejected)
    return {
        "snapshot": node_snapshot(decision.request, decision.model, nodes),
        "considered": decision.considered,
        "eligible": len(decision.ranked),
        "decision": _kept_decision(kept, whole=whole),
        "reason": decision.reason,
    }


def _kept_decision(decision: NodeDecision, *, whole: bool) -> dict[str, Any]:
    """The members of a node decision that can be recomputed from the nodes that were kept."""
    members = decision.to_dict()
    del members["considered"]
    if not whole and not decision.ranked:
        del members["reason"]  # it counts nodes that are not on the record
    return members


def _replay_node(part: Part) -> tuple[dict[str, Any], bool]:
    snapshot = read_snapshot(part.raw("snapshot"), part.at("snapshot"))
    request, model, nodes = snapshot.node_request, snapshot.models[0], snapshot.nodes or ()
    whole = part.count("considered") == len(nodes)
    if whole:
        return _kept_decision(decide_node(request, model, nodes), whole=True), True
    pool = _pool(part.part("decision").part("pool"))
    rejected = [Rejected(node, bits) for node in nodes if (bits := rejection_bits(node, request, model))]
    eligible = [node for node in nodes if not rejection_bits(node, request, model)]
    again = NodeDecision(
        request,
        model,
        _widened(pool, pool_of(eligible, model)),
        tuple(sorted((score_node(node, request, model, pool) for node in eligible), key=rank)),
        tuple(sorted(rejected, key=lambda each: each.node.node_id)),
    )
    return _kept_decision(again, whole=False), False


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


def _auto_record(decision: AutoNodeDecision, keep: int) -> dict[str, Any]:
    chosen = decision.chosen
    return {
        "best": [
            {"model": each.model.model_id, "node_id": each.selected, "total": each.ranked[0].total}
            for each in decision.decisions
            if each.ranked
        ],
        "chosen": None if chosen is None else _node_record(chosen, keep),
        "reason": decision.reason,
    }


def _replay_best(part: Part) -> list[str]:
    """The chosen pair must be the first of the best pairs of all models, in catalog order."""
    totals = [(-(pair.number("total") or 0.0), index) for index, pair in enumerate(part.parts("best"))]
    best = list(part.parts("best"))[min(totals)[1]] if totals else None
    decision = part.part("chosen").part("decision")
    expected = None if best is None else (best.text("model"), best.text("node_id"))
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


def class_snapshot(request: ClassRequest, policy: CommunityFirst, classes: Iterable[ClassState]) -> dict[str, Any]:
    """The input of a class decision, as `read_snapshot` reads it."""
    return {
        "request": {
            "mode": str(request.mode),
            "privacy": None if request.privacy is None else str(request.privacy),
            "plan": str(request.plan),
            "max_cost_usd": request.max_cost_usd,
            "max_latency_ms": request.max_latency_ms,
            "carries_plaintext": request.carries_plaintext,
            "names_node_model": request.names_node_model,
        },
        "community_first": str(policy),
        "classes": [
            {
                "class": str(state.resource_class),
                "supported": state.supported,
                "available": state.available,
                "cost_usd": state.cost_usd,
                "latency_ms": state.latency_ms,
                "reliability": state.reliability,
                "quality": state.quality,
                "confidence": state.confidence,
                "mock": state.mock,
            }
            for state in classes
        ],
    }


def node_snapshot(request: NodeRequest, model: ModelNeed, nodes: Iterable[NodeState]) -> dict[str, Any]:
    """The input of a node decision, as `read_snapshot` reads it, with nothing of other models in it."""
    return {
        "request": {
            "model": model.model_id,
            "region": request.region,
            "require_region": request.require_region,
            "max_ask_usd_per_1m": request.max_ask_usd_per_1m,
            "node": request.node,
        },
        "model": {"id": model.model_id, "min_vram_mib": model.min_vram_mib, "mock": model.mock},
        "nodes": [_node_dict(node, model.model_id) for node in nodes],
    }


def _node_dict(node: NodeState, model_id: str) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "state": str(node.state),
        "serves": [model_id] if model_id in node.serves else [],
        "loaded": [model_id] if model_id in node.loaded else [],
        "vram_mib": node.reported_vram_mib,
        "slots": node.slots,
        "active": node.active,
        "queue": node.queue,
        "tok_s": {model_id: node.tok_s[model_id]} if node.tok_s.get(model_id) is not None else {},
        "benchmark_tok_s": node.benchmark_tok_s,
        "basis": str(node.basis),
        "rtt_ms": node.rtt_ms,
        "reliability": node.reliability,
        "region": node.region,
        "ask_usd_per_1m": node.ask_usd_per_1m,
    }
