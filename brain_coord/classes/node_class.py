"""NATIVE_NETWORK, and the operator's own nodes in CLOUD_GPU: the same node router over two disjoint sets of nodes."""

from collections.abc import Iterator

from brain_coord.classes.backend import Prospect, Query
from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.snapshot import node_state
from brain_coord.routing.auto_router import AutoNodeDecision, decide_auto_node
from brain_coord.routing.inputs import AUTO_MODEL, ClassState, ModelNeed
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.vocabulary import ResourceClass
from brain_node.contract.catalog import Catalog

PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})


class NodeClass:
    """The nodes that joined with an operator token, or those that did not."""

    def __init__(self, resource_class: ResourceClass, registry: Registry, catalog: Catalog, *, operator: bool) -> None:
        self.resource_class = resource_class
        self.samples = ClassSamples()
        self._registry = registry
        self._operator = operator
        self._needs = {model.id: ModelNeed(model.id, model.min_vram_mib, model.mock) for model in catalog}

    def models(self) -> list[str]:
        """What connected nodes of this class offer and the catalog knows, in catalog order."""
        offered = {
            model
            for node in self._registry.nodes.values()
            if node.operator is self._operator and node.connected
            for model in node.models
        }
        return [model for model in self._needs if model in offered]

    def prospect(self, query: Query) -> Prospect:
        """The node decision, and what follows from it for the class."""
        decision = self._decide(query)
        known = query.model in self._needs
        supported = query.path in PATHS and (known or query.model == AUTO_MODEL)
        if self._operator and known:
            # Strangers may yet join with any model of the catalog; the operator's own hardware is what it is.
            supported = supported and any(
                query.model in node.models for node in self._registry.nodes.values() if node.operator
            )
        samples = self.samples
        state = ClassState(
            resource_class=self.resource_class,
            supported=supported,
            available=decision is not None and bool(decision.ranked),
            cost_usd=self._cost(decision, query),
            latency_ms=samples.latency_ms,
            reliability=samples.reliability,
            quality=None,
            confidence=samples.confidence,
            mock=known and self._needs[query.model].mock,
        )
        return Prospect(state, decision)

    def _decide(self, query: Query) -> NodeDecision | AutoNodeDecision | None:
        nodes = [node_state(node) for node in self._registry.nodes.values() if node.operator is self._operator]
        if query.model == AUTO_MODEL:
            return decide_auto_node(query.node_request, list(self._needs.values()), nodes)
        need = self._needs.get(query.model)
        return None if need is None else decide_node(query.node_request, need, nodes)

    def _cost(self, decision: NodeDecision | AutoNodeDecision | None, query: Query) -> float | None:
        """By the ask of the node that would be chosen; unknown without an ask."""
        if decision is None or decision.selected is None:
            return None
        node = self._registry.get(decision.selected)
        ask = None if node is None else node.reported.offer.ask_usd_per_1m
        return None if ask is None else round(ask * query.output_tokens / 1_000_000, 9)

    def targets(self, query: Query, prospect: Prospect) -> Iterator[Target]:
        """The ranked nodes that can still take a job when their turn comes."""
        decision = prospect.node_decision
        if isinstance(decision, AutoNodeDecision):
            ranked = [(pair.score.node_id, pair.model.model_id) for pair in decision.ranked]
        else:
            ranked = [] if decision is None else [(score.node_id, query.model) for score in decision.ranked]
        for node_id, model in ranked:
            node = self._registry.get(node_id)
            if node is not None and node.state in ("ONLINE", "BUSY") and node.free > 0 and model in node.models:
                yield NodeTarget(self._registry, node, model, self.resource_class, self.samples)
