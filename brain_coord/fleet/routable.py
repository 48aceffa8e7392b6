"""The live nodes as the routers see them: derived again only where something changed."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.snapshot import SeenStates
from brain_coord.routing.index import NodeIndex
from brain_coord.routing.inputs import ModelNeed
from brain_coord.routing.vocabulary import Liveness


class RoutableNodes:
    """The operator's own nodes, and all others, behind an index each.

    Every change of a node marks it; a decision first derives the marked ones anew, so ten changes between two decisions
    cost one derivation, and a decision costs nothing for nodes that did not change.

    Args:
        registry: where the nodes live.
        models: what may be asked for, in catalog order.
    """

    def __init__(self, registry: Registry, models: Sequence[ModelNeed]) -> None:
        self._registry = registry
        self._indexes = {operator: NodeIndex(models) for operator in (False, True)}
        self._held: dict[bool, frozenset[str]] = {}
        """Of each of the two kinds, those that are held back; without an entry there are none."""
        self._marked: set[Node] = set(registry.nodes.values())
        self._states: dict[str, SeenStates] = {}
        registry.on_touch.append(self._marked.add)

    def index(self, operator: bool, held: Collection[str] | None = None) -> NodeIndex:
        """The index as of now.

        Args:
            operator: of which of the two kinds.
            held: ids of nodes that their breakers hold back: set aside after faults, which is what DEGRADED means.
                `None` leaves those that were told last.
        """
        if (held or self._held) and held is not None:
            self._hold(operator, frozenset(held))
        if self._marked:
            marked = tuple(self._marked)
            self._marked.clear()
            for node in marked:
                self._derive(node)
        return self._indexes[operator]

    def _hold(self, operator: bool, held: frozenset[str]) -> None:
        changed = map(self._registry.get, held ^ self._held.pop(operator, frozenset()))
        self._marked.update(node for node in changed if node is not None)
        if held:
            self._held[operator] = held

    def _derive(self, node: Node) -> None:
        node_id, operator = node.node_id, node.operator
        seen = self._states.get(node_id)
        if seen is None:
            seen = self._states[node_id] = SeenStates(operator=operator)
        elif seen.operator is not operator:
            self._indexes[seen.operator].remove(node_id)
            seen.operator = operator
        state = seen.of(node)
        if self._held and node_id in self._held.get(operator, ()) and state.state in (Liveness.ONLINE, Liveness.BUSY):
            state = replace(state, state=Liveness.DEGRADED)
        self._indexes[operator].put(state)
