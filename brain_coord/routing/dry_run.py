"""Both routers over one snapshot, and the sentence that stands for the whole."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from brain_coord.routing.auto_router import AutoNodeDecision, decide_auto_node
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.inputs import NodeState
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.snapshot import Snapshot
from brain_coord.routing.vocabulary import ResourceClass


@dataclass(frozen=True, slots=True)
class Routing:
    """The two decisions of one request; `None` where there was nothing to decide."""

    class_decision: ClassDecision | None
    node_decision: NodeDecision | AutoNodeDecision | None

    @property
    def sentence(self) -> str:
        """`NATIVE_NETWORK (COMMUNITY) → N-3A4F…: score 0.83 = 0.30·capability 1.0 + …`."""
        return routing_sentence(self.class_decision, self.node_decision)

    def to_dict(self) -> dict[str, Any]:
        """As `brain-coord route --json` prints it."""
        return {
            "class": None if self.class_decision is None else self.class_decision.to_dict(),
            "node": None if self.node_decision is None else self.node_decision.to_dict(),
        }


def decide(snapshot: Snapshot) -> Routing:
    """Decide whatever a snapshot holds."""
    class_decision = node_decision = None
    if snapshot.classes is not None:
        class_decision = decide_class(snapshot.class_request, snapshot.classes, snapshot.community_first)
    if snapshot.nodes is not None:
        node_decision = _decide_nodes(snapshot, snapshot.nodes)
    return Routing(class_decision, node_decision)


def routing_sentence(
    class_decision: ClassDecision | None, node_decision: NodeDecision | AutoNodeDecision | None
) -> str:
    """Where a request goes and why, in one sentence.

    Args:
        class_decision: `None` when the request pinned a node model.
        node_decision: of the class that was selected; beside any class but NATIVE_NETWORK and CLOUD_GPU (the operator's
            own nodes) it says nothing about where this request goes and is left out.
    """
    if class_decision is None:
        return "nothing to decide" if node_decision is None else node_decision.reason
    by_node = class_decision.selected in (ResourceClass.NATIVE_NETWORK, ResourceClass.CLOUD_GPU)
    if node_decision is None or not by_node:
        return class_decision.reason
    return f"{class_decision.label} → {node_decision.reason}"


def _decide_nodes(snapshot: Snapshot, nodes: Iterable[NodeState]) -> NodeDecision | AutoNodeDecision:
    if snapshot.auto:
        return decide_auto_node(snapshot.node_request, snapshot.models, nodes)
    return decide_node(snapshot.node_request, snapshot.models[0], nodes)
