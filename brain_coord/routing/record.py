"""What a receipt keeps of a routing decision: enough to decide again, however many nodes were looked at.

A class decision has at most four rows and is kept whole. A node decision may have looked at ten thousand nodes: kept are
the inputs of the best and of the first rejected, and the pool that they were compared against.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.dry_run import Routing
from brain_coord.routing.inputs import ClassRequest, ClassState, ModelNeed, NodeRequest, NodeState, is_known
from brain_coord.routing.node_decision import ALL_LISTED, NodeDecision
from brain_coord.routing.vocabulary import CommunityFirst

NODES_KEPT: Final = 5
"""How many ranked and how many rejected nodes a record keeps."""


def routing_record(routing: Routing, keep: int = NODES_KEPT) -> dict[str, Any]:
    """What a receipt keeps: JSON values that `replay` understands."""
    chosen, node = routing.class_decision, routing.node_decision
    return {
        "class": None if chosen is None else class_record(chosen),
        "node": None if node is None else node_record(node, keep),
    }


def node_record(decision: NodeDecision | AutoNodeDecision, keep: int = NODES_KEPT) -> dict[str, Any]:
    """The part of the node router."""
    return _auto_record(decision, keep) if isinstance(decision, AutoNodeDecision) else _node_record(decision, keep)


def class_record(decision: ClassDecision) -> dict[str, Any]:
    """The part of the class router."""
    states = (row.state for row in decision.rows)
    return {
        "snapshot": class_snapshot(decision.request, decision.policy, states),
        "decision": decision.to_dict(),
    }


def _node_record(decision: NodeDecision, keep: int) -> dict[str, Any]:
    kept = replace(decision, ranked=decision.ranked[:keep], rejected=decision.rejected[:keep], unlisted=ALL_LISTED)
    nodes = [score.node for score in kept.ranked] + [each.node for each in kept.rejected]
    return {
        "snapshot": node_snapshot(decision.request, decision.model, nodes),
        "considered": decision.considered,
        "eligible": decision.eligible,
        "decision": kept_members(kept, decision.reason),
    }


def kept_members(kept: NodeDecision, reason: str) -> dict[str, Any]:
    """What a record says of a node decision that was cut down to the kept nodes; the reason is that of the whole."""
    members = kept.to_dict()
    del members["considered"]
    return {**members, "reason": reason}


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


def class_snapshot(request: ClassRequest, policy: CommunityFirst, classes: Iterable[ClassState]) -> dict[str, Any]:
    """The input of a class decision, as `read_snapshot` reads it."""
    return {
        "request": {
            "mode": str(request.mode),
            "privacy": None if request.privacy is None else str(request.privacy),
            "plan": str(request.plan),
            "max_cost_usd": _known(request.max_cost_usd),
            "max_latency_ms": _known(request.max_latency_ms),
            "carries_plaintext": request.carries_plaintext,
            "names_node_model": request.names_node_model,
        },
        "community_first": str(policy),
        "classes": [
            {
                "class": str(state.resource_class),
                "supported": state.supported,
                "available": state.available,
                "cost_usd": _known(state.cost_usd),
                "latency_ms": _known(state.latency_ms),
                "reliability": _known(state.reliability),
                "quality": _known(state.quality),
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
            "max_ask_usd_per_1m": _known(request.max_ask_usd_per_1m),
            "node": request.node,
        },
        "model": {"id": model.model_id, "min_vram_mib": model.min_vram_mib, "mock": model.mock},
        "nodes": [_node_dict(node, model.model_id) for node in nodes],
    }


def _node_dict(node: NodeState, model_id: str) -> dict[str, Any]:
    tok_s = _known(node.tok_s.get(model_id))
    return {
        "node_id": node.node_id,
        "state": str(node.state),
        "serves": [model_id] if model_id in node.serves else [],
        "loaded": [model_id] if model_id in node.loaded else [],
        "vram_mib": node.reported_vram_mib,
        "slots": node.slots,
        "active": node.active,
        "queue": node.queue,
        "tok_s": {} if tok_s is None else {model_id: tok_s},
        "benchmark_tok_s": _known(node.benchmark_tok_s),
        "basis": str(node.basis),
        "rtt_ms": _known(node.rtt_ms),
        "reliability": _known(node.reliability) or 0,
        "region": node.region,
        "ask_usd_per_1m": _known(node.ask_usd_per_1m),
    }


def _known(value: float | None) -> float | None:
    """What the routers took for unknown is recorded as unknown; canonical JSON has no NaN and no infinity."""
    return value if is_known(value) else None
