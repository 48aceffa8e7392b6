"""NATIVE_NETWORK, and the operator's own nodes in CLOUD_GPU: the same node router over two disjoint sets of nodes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Final

from brain_coord.classes.backend import PASSED_OVER_SHOWN, Prospect, Query
from brain_coord.classes.health import HealthBook, PassedOver, TargetHealth
from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.returning import RETURN_S, Returning
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry, StateChange
from brain_coord.fleet.routable import RoutableNodes
from brain_coord.routing.auto_router import AutoNodeDecision, decide_auto_node
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.inputs import AUTO_MODEL, ClassState, ModelNeed, NodeState
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.rejections import DEGRADED, NOT_BENCHMARKED, NOT_SERVED, OFFLINE
from brain_coord.routing.vocabulary import Liveness, ResourceClass
from brain_node.contract.catalog import Catalog

PATHS: Final = frozenset(
    "/v1/" + name
    for name in (
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "messages",
        "messages/count_tokens",
    )
)
"""What engines may serve; one that has no such route, or not for this model, says so with a 404."""


ElsewhereTarget = Callable[[Node, str, ResourceClass, ClassSamples, TargetHealth], Target]


class NodeClass:
    """The nodes that joined with an operator token, or those that did not."""

    def __init__(
        self,
        resource_class: ResourceClass,
        registry: Registry,
        catalog: Catalog,
        *,
        operator: bool,
        health: HealthBook | None = None,
        samples: ClassSamples | None = None,
    ) -> None:
        self.resource_class = resource_class
        self.samples = samples or ClassSamples()
        self.health = health or HealthBook()
        self._registry = registry
        self._operator = operator
        self.elsewhere: ElsewhereTarget | None = None
        """Makes the target for a node that another coordinator of the cluster holds."""
        self._needs = {model.id: ModelNeed(model.id, model.min_vram_mib, model.mock) for model in catalog}
        self._routable = RoutableNodes(registry, tuple(self._needs.values()), operator=operator)
        self._returning = Returning(monotonic())
        self._prospects: Bounded[tuple[object, ...], Prospect] = Bounded()
        self._states: Bounded[tuple[object, ...], ClassState] = Bounded()
        self._nobody: tuple[tuple[object, ...], Prospect] | None = None
        """The last answer, while there is no node at all: on most coordinators, of the operator's own."""
        registry.on_change.append(self._on_change)

    def _on_change(self, change: StateChange) -> None:
        if change.after == "OFFLINE":
            self._returning.left(change.node_id, monotonic(), draining=change.before == "DRAINING")

    def models(self) -> list[str]:
        """What connected nodes of this class offer and the catalog knows, in catalog order."""
        return self._routable.index().offered()

    def prospect(self, query: Query) -> Prospect:
        """The node decision, and what follows from it for the class."""
        if self._routable.any_node() or self.health.trouble:
            return self._find(query)
        key = (query.model, query.path, query.node_request, *self.samples.estimates)
        if self._nobody is None or self._nobody[0] != key:
            self._nobody = key, self._find(query)
        return self._nobody[1]

    def _find(self, query: Query) -> Prospect:
        now = monotonic()
        troubled = [health for health in self.health.in_trouble(now) if self._is_ours(health.name)]
        out = {health.name: ready for health in troubled if (ready := health.out_until(now)) is not None}
        decision = self._decide(query, out)
        if troubled or decision is None or not (decision.ranked or decision.considered == 0):
            return self._prospect(query, decision, troubled, out, now)
        # What nothing but these speaks of is the same answer as before, with every sentence that was made of it.
        key = (id(decision), query.path, self._cost(decision, query), *self.samples.estimates)
        found = self._prospects.get(key)
        return found or self._prospects.keep(key, self._prospect(query, decision, troubled, out, now))

    def _prospect(
        self,
        query: Query,
        decision: NodeDecision | AutoNodeDecision | None,
        troubled: Sequence[TargetHealth],
        out: dict[str, float],
        now: float,
    ) -> Prospect:
        known = query.model in self._needs
        supported = query.path in PATHS and (known or query.model == AUTO_MODEL)
        if self._operator and known:
            # Strangers may yet join with any model of the catalog; the operator's own hardware is what it is.
            supported = supported and self._routable.index(out).serving(query.model) > 0
        remarks = ((health.name, health.remark(now, (query.path, query.model))) for health in troubled)
        return Prospect(
            self._state(
                supported,
                decision is not None and bool(decision.ranked),
                self._cost(decision, query),
                known and self._needs[query.model].mock,
            ),
            decision,
            wait_s=0.0 if decision is None else self._wait_s(decision, query, out, now),
            passed_over=tuple(PassedOver(name, remark) for name, remark in remarks if remark)[:PASSED_OVER_SHOWN],
        )

    def _state(self, supported: bool, available: bool, cost_usd: float | None, mock: bool) -> ClassState:
        """The class as the class router sees it; the same object where it is an equal one."""
        estimates = self.samples.estimates
        key = (supported, available, cost_usd, mock, *estimates)
        found = self._states.get(key)
        if found is None:
            latency_ms, reliability, confidence = estimates
            found = ClassState(
                self.resource_class,
                supported,
                available,
                cost_usd,
                latency_ms,
                reliability,
                quality=None,
                confidence=confidence,
                mock=mock,
            )
            self._states.keep(key, found)
        return found

    def _is_ours(self, node_id: str) -> bool:
        node = self._registry.get(node_id)
        return node is not None and node.operator is self._operator

    def _decide(self, query: Query, out: Iterable[str]) -> NodeDecision | AutoNodeDecision | None:
        if query.model == AUTO_MODEL:
            return self._routable.decide_auto(query.node_request, out)
        return self._routable.decide(query.node_request, query.model, out) if query.model in self._needs else None

    def _wait_s(
        self, decision: NodeDecision | AutoNodeDecision, query: Query, out: dict[str, float], now: float
    ) -> float:
        """How long to wait for a slot, for the end of a pause, or for a node that was here a moment ago."""
        if decision.ranked:
            return 0.0
        if decision.worth_waiting:
            return query.wait_s
        index = self._routable.index(out)
        for node_id, ready in out.items():
            if ready - now < query.wait_s and DEGRADED in self._reasons(query, index.state(node_id)):
                return query.wait_s
        if self._returning.everybody(now):
            back = any(self._may_return(query, state) for state in index.states())
        else:
            back = any(OFFLINE in self._reasons(query, index.state(each)) for each in self._returning.expected(now))
        return min(RETURN_S, query.wait_s) if back else 0.0

    def _may_return(self, query: Query, state: NodeState) -> bool:
        """Whether nothing but its absence is known against a node; what it serves may not be known yet either."""
        for bits in self._reasons(query, state):
            if bits == OFFLINE or (not state.serves and bits & ~(NOT_SERVED | NOT_BENCHMARKED) == OFFLINE):
                return True
        return False

    def _reasons(self, query: Query, state: NodeState | None) -> list[int]:
        """What keeps a node that cannot work now from the request, for each model that it could answer with."""
        if state is None or state.state in (Liveness.ONLINE, Liveness.BUSY, Liveness.DRAINING):
            return []
        if query.model == AUTO_MODEL:
            decision = decide_auto_node(query.node_request, list(self._needs.values()), [state])
            rejected = [*decision.strangers, *(each for one in decision.decisions for each in one.rejected)]
        else:
            rejected = [*decide_node(query.node_request, self._needs[query.model], [state]).rejected]
        return [each.bits for each in rejected]

    def _cost(self, decision: NodeDecision | AutoNodeDecision | None, query: Query) -> float | None:
        """By the ask of the node that would be chosen; unknown without an ask."""
        if decision is None or decision.selected is None:
            return None
        node = self._registry.get(decision.selected)
        ask = None if node is None else node.reported.offer.ask_usd_per_1m
        return None if ask is None else round(ask * query.output_tokens / 1_000_000, 9)

    def targets(self, query: Query, prospect: Prospect) -> Iterator[Target]:
        """The ranked nodes that can still take a job when their turn comes; those in trouble after the others."""
        decision = prospect.node_decision
        if isinstance(decision, AutoNodeDecision):
            ranked = [(pair.score.node_id, pair.model.model_id) for pair in decision.ranked]
        else:
            ranked = [] if decision is None else [(score.node_id, query.model) for score in decision.ranked]
        now = monotonic()
        if self.health.trouble:
            ranked.sort(key=lambda pair: self.health.of(pair[0]).last(now, (query.path, pair[1])) is not None)
        for node_id, model in ranked:
            node = self._registry.get(node_id)
            if node is None or node.operator is not self._operator or not node.serves(model):
                continue
            health = self.health.of(node_id)
            if node.state in ("ONLINE", "BUSY") and node.free > 0 and health.out(monotonic()) is None:
                if node.elsewhere is None or self.elsewhere is None:
                    yield NodeTarget(self._registry, node, model, self.resource_class, self.samples, health)
                else:
                    yield self.elsewhere(node, model, self.resource_class, self.samples, health)
