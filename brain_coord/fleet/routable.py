"""The live nodes of one class as the routers see them: derived again only where something changed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.snapshot import SeenStates
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.index import SMALL, NodeIndex
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import Liveness


class RoutableNodes:
    """The operator's own nodes, or all others, behind the index.

    Every change of a node marks it; a decision first derives the marked ones anew, so ten changes between two decisions
    cost one derivation, and a decision costs nothing for nodes that did not change.

    Args:
        registry: where the nodes live.
        models: what may be asked for, in catalog order.
        operator: which of the two kinds.
    """

    def __init__(self, registry: Registry, models: Sequence[ModelNeed], *, operator: bool) -> None:
        self._registry = registry
        self._operator = operator
        self._index = NodeIndex(models)
        self._marked: set[Node] = set(registry.nodes.values())
        self._held: frozenset[str] = frozenset()
        self._states: dict[str, SeenStates] = {}
        self._decisions: Bounded[tuple[object, ...], NodeDecision] = Bounded()
        registry.on_touch.append(self._marked.add)

    def index(self, held: Iterable[str] | None = None) -> NodeIndex:
        """The index as of now.

        Args:
            held: ids of nodes that their breakers hold back: set aside after faults, which is what DEGRADED means.
                `None` leaves those that were told last.
        """
        if held is not None and (now_held := frozenset(held)) != self._held:
            changed = map(self._registry.get, now_held ^ self._held)
            self._marked.update(node for node in changed if node is not None)
            self._held = now_held
        if self._marked:
            marked = tuple(self._marked)
            self._marked.clear()
            for node in marked:
                self._derive(node)
        return self._index

    def any_node(self) -> bool:
        """Whether there is a node of this kind."""
        return len(self.index()) > 0

    def _derive(self, node: Node) -> None:
        if node.operator is self._operator:
            self._index.put(self._state(node))
        elif node.node_id in self._index:
            self._states.pop(node.node_id, None)
            self._index.remove(node.node_id)

    def _state(self, node: Node) -> NodeState:
        seen = self._states.get(node.node_id)
        if seen is None:
            seen = self._states[node.node_id] = SeenStates()
        state = seen.of(node)
        held = node.node_id in self._held and state.state in (Liveness.ONLINE, Liveness.BUSY)
        return replace(state, state=Liveness.DEGRADED) if held else state

    def decide(self, request: NodeRequest, model_id: str, held: Iterable[str] | None = None) -> NodeDecision:
        """The node for a request that names its model; the same decision as before where nothing has changed since."""
        index = self.index(held)
        if request.node is not None or len(index) > SMALL:
            return index.decide(request, model_id)
        # By identity: a node in a state that it was in before is the same object, kept alive by the decision about it.
        key = (request, model_id, *map(id, index.states()))
        return self._decisions.get(key) or self._decisions.keep(key, index.decide(request, model_id))

    def decide_auto(self, request: NodeRequest, held: Iterable[str] | None = None) -> AutoNodeDecision:
        """The node and the model for a request that leaves both open."""
        return self.index(held).decide_auto(request)
