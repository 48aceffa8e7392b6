"""Pure: both routers, privacy, weights, sentences and the decision record. ROUTING.md publishes what they do."""

from brain_coord.routing.auto_router import AutoNodeDecision, decide_auto_node
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.dry_run import Routing, decide, routing_sentence
from brain_coord.routing.inputs import AUTO_MODEL, ClassRequest, ClassState, ModelNeed, NodeRequest, NodeState
from brain_coord.routing.node_decision import NodeDecision, NodeScore
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.privacy import default_privacy, is_privacy_conflict, may_see
from brain_coord.routing.reading import SnapshotError
from brain_coord.routing.record import routing_record
from brain_coord.routing.replay import Replay, replay
from brain_coord.routing.snapshot import Snapshot, read_snapshot

__all__ = [
    "AUTO_MODEL",
    "AutoNodeDecision",
    "ClassDecision",
    "ClassRequest",
    "ClassState",
    "ModelNeed",
    "NodeDecision",
    "NodeRequest",
    "NodeScore",
    "NodeState",
    "Replay",
    "Routing",
    "Snapshot",
    "SnapshotError",
    "decide",
    "decide_auto_node",
    "decide_class",
    "decide_node",
    "default_privacy",
    "is_privacy_conflict",
    "may_see",
    "read_snapshot",
    "replay",
    "routing_record",
    "routing_sentence",
]
