"""The node router over a fleet of thousands: the same answers as the pure functions, from columns kept up to date by events.

`node_router` and `auto_router` are the definition; a property test compares the two over random fleets and events. A
decision from here holds the beginning of each list (the first ranked, the first rejected by id) and counts the rest, so
that explaining it does not take a record for each node.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from brain_coord.routing.auto_router import AutoNodeDecision, Pair, decide_auto_node
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.index_group import Field, ModelGroup
from brain_coord.routing.index_reasons import model_reasons, nearest, nearest_reasons, nearest_words
from brain_coord.routing.index_select import best
from brain_coord.routing.index_table import Bools, Ints, NodeTable
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState, is_known
from brain_coord.routing.node_decision import NodeDecision, NodeScore, Rejected, Unlisted
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.rejections import NO_FREE_SLOT, OFFLINE, rejection_bits
from brain_coord.routing.weights import NAMED_NODES

RANKED_LISTED: Final = 8
"""How many ranked nodes a decision holds: more than a record keeps, and more than a request may try."""

SMALL: Final = 32
"""Up to so many nodes the pure functions are the faster way, and list everything."""

_BLOCK: Final = 256


class NodeIndex:
    """Nodes as the routers see them, and decisions among them.

    Args:
        models: what may be asked for, in catalog order.
        small: fleets up to this size are left to the pure functions.
    """

    def __init__(self, models: Sequence[ModelNeed], *, small: int = SMALL) -> None:
        self._models = {model.model_id: model for model in models}
        self._small = small
        self._states: dict[str, NodeState] = {}
        self._unwritten: dict[str, None] = {}
        self._decided: Bounded[tuple[object, ...], NodeDecision] = Bounded()
        self._decided_auto: Bounded[tuple[object, ...], AutoNodeDecision] = Bounded()
        self._table = NodeTable()
        self._groups = {model.model_id: ModelGroup(model, self._table) for model in models}
        self._real = [self._groups[model.model_id] for model in models if not model.mock]

    def __len__(self) -> int:
        return len(self._states)

    def states(self) -> Iterator[NodeState]:
        """Every node."""
        return iter(self._states.values())

    def state(self, node_id: str) -> NodeState | None:
        """One node as it was last put."""
        return self._states.get(node_id)

    def serving(self, model_id: str) -> int:
        """How many nodes serve a model, connected or not."""
        if not self._states or model_id not in self._groups:
            return 0
        self._write()
        return self._groups[model_id].serving

    def offered(self) -> list[str]:
        """The models that nodes which are not offline serve, in catalog order."""
        self._write()
        here = (self._table.bits & OFFLINE) == 0
        return [model_id for model_id, group in self._groups.items() if (group.serves & here).any()]

    def put(self, state: NodeState) -> None:
        """A node is new, or has changed in any way. Its columns follow when they are looked at: a small fleet needs none."""
        node_id = state.node_id
        if self._states.get(node_id) is not state:
            self._states[node_id] = state
            self._unwritten[node_id] = None

    def remove(self, node_id: str) -> None:
        """A node is not known any more."""
        del self._states[node_id]
        self._unwritten[node_id] = None

    def _write(self) -> None:
        """Bring the columns up to date."""
        for node_id in self._unwritten:
            state = self._states.get(node_id)
            if state is not None:
                self._put(state)
            elif node_id in self._table.rows:
                self._remove(node_id)
        self._unwritten.clear()

    def _put(self, state: NodeState) -> None:
        table, groups = self._table, self._groups
        row = table.rows.get(state.node_id)
        before = frozenset() if row is None else table.state(row).serves
        capacity = table.capacity
        row = table.put(state)
        if table.capacity != capacity:
            for group in groups.values():
                group.grow()
        for model_id in state.serves:
            if model_id in groups:
                groups[model_id].put(row, state)
        if before != state.serves:
            for model_id in before - state.serves:
                if model_id in groups:
                    groups[model_id].leave(row)

    def _remove(self, node_id: str) -> None:
        served = self._table.state(self._table.rows[node_id]).serves
        row = self._table.remove(node_id)
        for model_id in served:
            if model_id in self._groups:
                self._groups[model_id].leave(row)

    # --- one model ---------------------------------------------------------------------------------------------------

    def decide(self, request: NodeRequest, model_id: str) -> NodeDecision:
        """As `decide_node` over all nodes; of few nodes the same one as before where nothing has changed since.

        Raises:
            KeyError: the model is not one of those the index was made for.
        """
        states = self._states
        if request.node is None and len(states) <= self._small:
            # By identity: a decision keeps alive what it was made of, the request and every node's state.
            key = (id(request), model_id, *map(id, states.values()))
            found = self._decided.get(key)
            return found or self._decided.keep(key, decide_node(request, self._models[model_id], states.values()))
        need, group = self._models[model_id], self._groups[model_id]
        if request.node is not None:
            return decide_node(request, need, self._pinned(request.node))
        self._write()
        return self._decide(request, group, self._field(group, request), self._table.order, RANKED_LISTED)

    def _decide(self, request: NodeRequest, group: ModelGroup, field: Field, order: Ints, listed: int) -> NodeDecision:
        """The decision among the nodes in `order`, which holds every eligible one."""
        table, need = self._table, group.need
        scores = best(field, listed, table, request, need)
        others = self._first_others(field, NAMED_NODES, order)
        rejected = tuple(Rejected(node, rejection_bits(node, request, need)) for node in map(table.state, others))
        unlisted = Unlisted(len(field.rows) - len(scores), len(order) - len(field.rows) - len(rejected))
        if not scores and unlisted.rejected:
            reasons = model_reasons(order[len(rejected) :], table, group, request)
            unlisted = Unlisted(0, unlisted.rejected, reasons.every, reasons.first, reasons.worth_waiting)
        return NodeDecision(request, need, field.pool, tuple(scores), rejected, unlisted)

    def _pinned(self, node_id: str) -> list[NodeState]:
        """The only candidate of a request that names it."""
        state = self._states.get(node_id)
        return [] if state is None else [state]

    def _field(self, group: ModelGroup, request: NodeRequest) -> Field:
        region = None if request.region is None else self._table.region_code(request.region)
        return group.eligible(region, self._kept(request))

    def _kept(self, request: NodeRequest) -> Bools | None:
        """By row, the nodes that the request's own wishes leave over, `None` when it has none."""
        table = self._table
        kept: Bools | None = None
        if request.require_region and request.region is not None:
            kept = table.region == table.region_code(request.region)
        budget = request.max_ask_usd_per_1m
        if is_known(budget):
            affordable = ~(table.priced & (table.ask > budget))
            kept = affordable if kept is None else kept & affordable
        return kept

    def _first_others(self, field: Field, count: int, order: Ints) -> list[int]:
        """The first rows of `order` that are not in the field."""
        inside = np.zeros(self._table.capacity, np.bool_)
        inside[field.rows] = True
        found: list[int] = []
        start, size = 0, _BLOCK
        while len(found) < count and start < len(order):
            block = order[start : start + size]
            found += block[~inside[block]][: count - len(found)].tolist()
            start, size = start + size, size * 8
        return found

    # --- brain/auto --------------------------------------------------------------------------------------------------

    def decide_auto(self, request: NodeRequest) -> AutoNodeDecision:
        """As `decide_auto_node` over all nodes; of few nodes the same one as before where nothing has changed since."""
        states, models = self._states, list(self._models.values())
        if request.node is None and len(states) <= self._small:
            key = (id(request), *map(id, states.values()))
            known = self._decided_auto.get(key)
            return known or self._decided_auto.keep(key, decide_auto_node(request, models, states.values()))
        if request.node is not None:
            return decide_auto_node(request, models, self._pinned(request.node))
        self._write()
        fields = [self._field(group, request) for group in self._real]
        pairs = self._pairs(request, fields)
        if not pairs:
            return self._nobody(request, fields)
        chosen = pairs[0].model.model_id
        decisions = tuple(
            self._decide(request, group, field, self._serving(group), RANKED_LISTED)
            if group.need.model_id == chosen
            else self._only_best(request, group, field)
            for group, field in zip(self._real, fields, strict=True)
        )
        eligible = sum(len(field.rows) for field in fields)
        # How many nodes can serve nothing at all is not worth counting while somebody can.
        unlisted = Unlisted(eligible - len(pairs))
        return AutoNodeDecision(request, decisions, tuple(pairs), (), len(self._table), unlisted, ())

    def _serving(self, group: ModelGroup) -> Ints:
        order = self._table.order
        return order[group.serves[order]]

    def _only_best(self, request: NodeRequest, group: ModelGroup, field: Field) -> NodeDecision:
        scores = tuple(best(field, 1, self._table, request, group.need))
        unlisted = Unlisted(len(field.rows) - len(scores), group.serving - len(field.rows))
        return NodeDecision(request, group.need, field.pool, scores, (), unlisted)

    def _pairs(self, request: NodeRequest, fields: Sequence[Field]) -> list[Pair]:
        """The first pairs of all models together: the best of each model first, more of a model only once it leads."""
        known: dict[int, list[NodeScore]] = {}
        heap: list[tuple[float, int, int]] = []
        for number, field in enumerate(fields):
            if len(field.rows):
                known[number] = best(field, 1, self._table, request, self._real[number].need)
                heap.append((-known[number][0].total, number, 0))
        heapq.heapify(heap)
        pairs: list[Pair] = []
        while heap and len(pairs) < RANKED_LISTED:
            _, number, place = heapq.heappop(heap)
            need = self._real[number].need
            pairs.append(Pair(need, known[number][place]))
            if place + 1 == len(known[number]) < len(fields[number].rows):
                known[number] = best(fields[number], RANKED_LISTED, self._table, request, need)
            if place + 1 < len(known[number]):
                heapq.heappush(heap, (-known[number][place + 1].total, number, place + 1))
        return pairs

    def _nobody(self, request: NodeRequest, fields: Sequence[Field]) -> AutoNodeDecision:
        table, groups = self._table, self._real
        decisions = tuple(
            NodeDecision(request, group.need, field.pool, (), (), self._without(request, group))
            for group, field in zip(groups, fields, strict=True)
        )
        found = nearest(table, groups, request)
        count = min(NAMED_NODES, len(table))
        named = tuple(nearest_words(found, at, table, groups, request) for at in range(count))
        reasons = nearest_reasons(found, count, table, groups, request)
        unlisted = Unlisted(0, len(table) - count, reasons.every, reasons.first)
        return AutoNodeDecision(request, decisions, (), (), len(table), unlisted, named)

    def _without(self, request: NodeRequest, group: ModelGroup) -> Unlisted:
        """The nodes that serve a model, none of which is eligible."""
        rows = np.flatnonzero(group.serves)
        waiting = (
            bool((self._table.bits[rows] == NO_FREE_SLOT).any())
            and model_reasons(rows, self._table, group, request).worth_waiting
        )
        return Unlisted(0, len(rows), worth_waiting=waiting)
