"""The live nodes of one class as the routers see them: derived again only where something changed."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.snapshot import SeenStates
from brain_coord.routing.index import NodeIndex
from brain_coord.routing.inputs import ModelNeed
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
        registry.on_touch.append(self._marked.add)

    def index(self, held: Collection[str] | None = None) -> NodeIndex:
        """The index as of now.

        Args:
            held: ids of nodes that their breakers hold back: set aside after faults, which is what DEGRADED means.
                `None` leaves those that were told last.
        """
        if (held or self._held) and held is not None:
            now_held = frozenset(held)
            changed = map(self._registry.get, now_held ^ self._held)
            self._marked.update(node for node in changed if node is not None)
            self._held = now_held
        if self._marked:
            marked = tuple(self._marked)
            self._marked.clear()
            for node in marked:
                self._derive(node)
        return self._index

    def _derive(self, node: Node) -> None:
        node_id = node.node_id
        seen = self._states.get(node_id)
        if node.operator is not self._operator:
            if seen is not None:
                del self._states[node_id]
                self._index.remove(node_id)
            return
        if seen is None:
            seen = self._states[node_id] = SeenStates()
        state = seen.of(node)
        if node_id in self._held and state.state in (Liveness.ONLINE, Liveness.BUSY):
            state = replace(state, state=Liveness.DEGRADED)
        self._index.put(state)
