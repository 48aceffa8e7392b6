"""NATIVE_NETWORK, and the operator's own nodes in CLOUD_GPU: the same node router over two disjoint sets of nodes."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from brain_coord.classes.backend import OUTPUT_TOKENS, PASSED_OVER_SHOWN, Prospect, Query
from brain_coord.classes.health import HealthBook, PassedOver, TargetHealth
from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.returning import RETURN_S, Returning
from brain_coord.classes.samples import ClassSamples, Estimates
from brain_coord.classes.target import Target
from brain_coord.classes.upstream import Offer
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry, StateChange
from brain_coord.fleet.routable import RoutableNodes
from brain_coord.routing.auto_router import AutoNodeDecision, decide_auto_node
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.index import NodeIndex
from brain_coord.routing.inputs import AUTO_MODEL, ClassState, ModelNeed, NodeRequest, NodeState
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


_WORKING: Final = (Liveness.ONLINE, Liveness.BUSY)

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
        routable: RoutableNodes | None = None,
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
        self._needs = needs_of(catalog)
        self._routable = routable or RoutableNodes(registry, tuple(self._needs.values()))
        self._returning = Returning(monotonic())
        self._nobody: Bounded[tuple[object, ...], Prospect] = Bounded()
        """The answers while there is no node at all: on most coordinators, of the operator's own."""
        self._states: Bounded[tuple[object, ...], ClassState] = Bounded()
        registry.on_gone.append(self._left)

    def _left(self, change: StateChange) -> None:
        self._returning.left(change.node_id, monotonic(), draining=change.before == "DRAINING")

    @property
    def configured(self) -> bool:
        """Strangers may always join; of the operator's own nodes at least one has to have done so."""
        return not self._operator or bool(self._routable.index(True))

    def models(self) -> list[str]:
        """What connected nodes of this class offer and the catalog knows, in catalog order."""
        return self._routable.index(self._operator).offered()

    def offers(self) -> Iterable[Offer]:
        """None: each node has an ask of its own."""
        return ()

    def prospect(self, query: Query, output_tokens: int = OUTPUT_TOKENS, body: bytes = b"") -> Prospect:
        """The node decision, and what follows from it for the class."""
        del body
        if self.health.troubled:
            return self._with_trouble(query, output_tokens)
        index = self._routable.index(self._operator, ())
        key = None
        if not index:
            key = (query, self.samples.estimates)
            if (found := self._nobody.get(key)) is not None:
                return found
        decision = self._decide(query, index, output_tokens)
        if decision is None or decision.ranked:
            # There is nothing more to say.
            return Prospect(self._state(query, decision, index, output_tokens), decision)
        found = self._prospect(query, decision, index, output_tokens, (), {}, monotonic())
        return found if key is None else self._nobody.keep(key, found)

    def _with_trouble(self, query: Query, output_tokens: int) -> Prospect:
        now = monotonic()
        troubled = self._troubled(now)
        out = _out_until(troubled, now)
        index = self._routable.index(self._operator, out)
        decision = self._decide(query, index, output_tokens)
        return self._prospect(query, decision, index, output_tokens, troubled, out, now)

    def _troubled(self, now: float) -> list[TargetHealth]:
        return [health for health in self.health.in_trouble(now) if self._is_ours(health.name)]

    def _prospect(
        self,
        query: Query,
        decision: NodeDecision | AutoNodeDecision | None,
        index: NodeIndex,
        output_tokens: int,
        troubled: Sequence[TargetHealth],
        out: Mapping[str, float],
        now: float,
    ) -> Prospect:
        remarks = ((health.name, health.remark(now, (query.path, query.model))) for health in troubled)
        return Prospect(
            self._state(query, decision, index, output_tokens),
            decision,
            wait_s=0.0 if decision is None else self._wait_s(decision, query, index, out, now),
            passed_over=tuple(PassedOver(name, remark) for name, remark in remarks if remark)[:PASSED_OVER_SHOWN],
        )

    def _state(
        self, query: Query, decision: NodeDecision | AutoNodeDecision | None, index: NodeIndex, output_tokens: int
    ) -> ClassState:
        """The class as the class router sees it; the same object while nothing that it speaks of changes."""
        available, cost_usd, lacking = False, None, False
        if decision is not None and decision.ranked:
            available, ask = True, decision.ask_usd_per_1m
            cost_usd = None if ask is None else round(ask * output_tokens / 1_000_000, 9)
        elif self._operator:
            # Strangers may yet join with any model of the catalog; the operator's own hardware is what it is.
            lacking = query.model in self._needs and not index.serving(query.model)
        key = (query, available, cost_usd, lacking, self.samples.estimates)
        return self._states.get(key) or self._states.keep(key, self._new_state(*key))

    def _new_state(
        self, query: Query, available: bool, cost_usd: float | None, lacking: bool, estimates: Estimates
    ) -> ClassState:
        known = query.model in self._needs
        return ClassState(
            self.resource_class,
            supported=query.path in PATHS and (known or query.model == AUTO_MODEL) and not lacking,
            available=available,
            cost_usd=cost_usd,
            latency_ms=estimates.latency_ms,
            reliability=estimates.reliability,
            confidence=estimates.confidence,
            mock=known and self._needs[query.model].mock,
        )

    def _is_ours(self, node_id: str) -> bool:
        node = self._registry.get(node_id)
        return node is not None and node.operator is self._operator

    def _decide(self, query: Query, index: NodeIndex, output_tokens: int) -> NodeDecision | AutoNodeDecision | None:
        request = query.node_request
        if query.max_cost_usd is not None and output_tokens:
            request = _within(request, query.max_cost_usd * 1_000_000 / output_tokens)
        if query.model in self._needs:
            return index.decide(request, query.model)
        return index.decide_auto(request) if query.model == AUTO_MODEL else None

    def _wait_s(
        self,
        decision: NodeDecision | AutoNodeDecision,
        query: Query,
        index: NodeIndex,
        out: Mapping[str, float],
        now: float,
    ) -> float:
        """How long to wait for a slot, for the end of a pause, or for a node that was here a moment ago."""
        if decision.ranked:
            return 0.0
        if decision.worth_waiting:
            return query.wait_s
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
        if self._registry.nodes[state.node_id].banned is not None:
            return []  # it is not let in
        if query.model == AUTO_MODEL:
            decision = decide_auto_node(query.node_request, list(self._needs.values()), [state])
            rejected = [*decision.strangers, *(each for one in decision.decisions for each in one.rejected)]
        else:
            rejected = [*decide_node(query.node_request, self._needs[query.model], [state]).rejected]
        return [each.bits for each in rejected]

    def target(self, query: Query, prospect: Prospect, passed: Set[str]) -> Target | None:
        """The best ranked node that can still take a job; those in trouble come after the others."""
        if prospect.node_decision is None:
            return None
        choices: Iterable[tuple[str, str]] = prospect.node_decision.choices
        out: Collection[str] = ()
        if self.health.troubled:
            now = monotonic()
            out = _out_until(self._troubled(now), now)
            choices = sorted(
                choices, key=lambda pair: self.health.of(pair[0]).last(now, (query.path, pair[1])) is not None
            )
        index, nodes = self._routable.index(self._operator, out), self._registry.nodes
        for node_id, model in choices:
            if node_id in passed:
                continue
            state, node = index.state(node_id), nodes.get(node_id)
            if state is None or node is None or model not in state.serves or state.active >= state.slots:
                continue
            if state.state in _WORKING:
                health = self.health.of(node_id)
                if node.elsewhere is None or self.elsewhere is None:
                    return NodeTarget(self._registry, node, model, self.resource_class, self.samples, health)
                return self.elsewhere(node, model, self.resource_class, self.samples, health)
        return None

    def full(self, prospect: Prospect) -> Set[str]:
        """Nodes that lacked nothing but a free slot."""
        return frozenset() if prospect.node_decision is None else prospect.node_decision.full

    def whole(
        self, query: Query, decided: NodeDecision | AutoNodeDecision
    ) -> Callable[[], NodeDecision | AutoNodeDecision]:
        """Over all nodes as they are now; among thousands that takes its time."""
        request = decided.request  # not the query's: it may have been asked within a budget
        states = tuple(self._routable.index(self._operator).states())
        if query.model == AUTO_MODEL:
            return partial(decide_auto_node, request, tuple(self._needs.values()), states)
        return partial(decide_node, request, self._needs[query.model], states)


def _within(request: NodeRequest, budget_usd_per_1m: float) -> NodeRequest:
    """The same request with this budget, if its own is no smaller."""
    own = request.max_ask_usd_per_1m
    return replace(request, max_ask_usd_per_1m=budget_usd_per_1m if own is None else min(own, budget_usd_per_1m))


def needs_of(catalog: Catalog) -> dict[str, ModelNeed]:
    """What each model asks of a node, in catalog order."""
    return {model.id: ModelNeed(model.id, model.min_vram_mib, model.mock) for model in catalog}


def _out_until(troubled: Iterable[TargetHealth], now: float) -> dict[str, float]:
    """Who may be asked nothing now, and until when."""
    return {health.name: ready for health in troubled if (ready := health.out_until(now)) is not None}
