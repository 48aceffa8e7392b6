"""Ask every class for its prospect and let the routers decide; nothing is reserved here."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from brain_coord.classes.backend import OUTPUT_TOKENS, ClassBackend, Prospect, Query
from brain_coord.classes.health import PassedOver
from brain_coord.classes.target import Target
from brain_coord.classes.upstream_class import tokens_of
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.request import ApiRequest
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.class_decision import ClassDecision, ClassRow
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.dry_run import routing_sentence
from brain_coord.routing.inputs import AUTO_MODEL, ClassRequest, ClassState, NodeRequest, is_over
from brain_coord.routing.modes import resolve_mode
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.privacy import may_see
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, Privacy, ResourceClass
from brain_node.contract.catalog import Catalog
from brain_node.contract.nearest import SUGGESTED, nearest

KEEPS_OUT: Final = {
    Exclusion.PRIVACY: "privacy {privacy} does not allow it, {wider} would",
    Exclusion.OVER_MAX_COST: "costs more than max_cost_usd",
    Exclusion.OVER_MAX_LATENCY: "slower than max_latency_ms",
}
"""What a request itself may hold against a class, in words; that it asked for BROWSER_ONLY it knows."""

LACKS: Final = frozenset({Exclusion.UNSUPPORTED, Exclusion.UNAVAILABLE})
"""What may be missing in a class that the request itself does not keep out."""

DECISIONS: Final = 32
"""Class decisions kept of each question. One takes 10 kB with its record, and there may be hundreds of questions."""

_STATE: Final = attrgetter("state")


class Decision(NamedTuple):
    """Both decisions for one request at one moment."""

    query: Query
    class_decision: ClassDecision
    prospects: Mapping[ResourceClass, Prospect]

    def _short_of_capacity(self) -> list[Prospect]:
        """The classes that the request may use and that only lack capacity, in the decision's order."""
        return [
            self.prospects[row.resource_class]
            for row in self.class_decision.rows
            if row.exclusions == (Exclusion.UNAVAILABLE,)
        ]

    @property
    def wait_s(self) -> float:
        """For how long it is worth to wait, in seconds; 0 where waiting would not help."""
        return max((prospect.wait_s for prospect in self._short_of_capacity()), default=0.0)

    @property
    def worth_waiting(self) -> bool:
        """Whether a class lacks nothing but capacity that may come soon."""
        return self.wait_s > 0

    @property
    def may_change(self) -> bool:
        """Whether it may help to come back: somebody lacks capacity, and not only what the request itself keeps out."""
        if self.class_decision.selected is not None:
            return True
        short = self._short_of_capacity()
        if not self._kept_out():
            return bool(short)
        decided = (each.node_decision for each in short)
        return any(each.shortage for each in short) or any(each is not None and each.considered for each in decided)

    @property
    def node_decision(self) -> NodeDecision | AutoNodeDecision | None:
        """That of the selected class; where there is none, of a class whose nodes cannot take it."""
        selected = self.class_decision.selected
        if selected is not None:
            return self.prospects[selected].node_decision
        without = self._without_a_node()
        return next((each for each in without if each.considered), next(iter(without), None))

    def _without_a_node(self) -> list[NodeDecision | AutoNodeDecision]:
        """What the node router said of each class that the request may use and whose nodes cannot take it.

        Those that serve the model come first. Where none of its nodes does, a class is unsupported; they are named all the same.
        """
        rows = [row for row in self.class_decision.rows if row.exclusions and LACKS.issuperset(row.exclusions)]
        rows.sort(key=lambda row: Exclusion.UNSUPPORTED in row.exclusions)
        found = [self.prospects[row.resource_class].node_decision for row in rows]
        return [each for each in found if each is not None and each.selected is None]

    def sentence(self, passed_over: Sequence[PassedOver]) -> str:
        """One line on how the request is routed, or why it cannot be, and on who was `passed_over`."""
        selected = self.class_decision.selected
        if selected is None:
            return self.shortage()
        prospect = self.prospects[selected]
        if prospect.choice is None:
            sentence = routing_sentence(self.class_decision, prospect.node_decision)
        else:
            sentence = f"{self.class_decision.reason} → {prospect.choice}"
        if not passed_over:
            return sentence
        return f"{sentence} [passed over: {'; '.join(f'{each.target} {each.reason}' for each in passed_over)}]"

    def passed_over(self) -> list[PassedOver]:
        """Targets of classes the request may use that were left out, or put last, for what they did lately."""
        found: list[PassedOver] = []
        for resource_class in self.class_decision.usable:
            found += self.prospects[resource_class].passed_over
        return found

    def shortage(self) -> str:
        """Why nobody can take it: the sentence on nodes first, then what other classes say of themselves.

        Classes that the request itself keeps out are named too: with them it might have been served.
        """
        short = self._short_of_capacity()
        nodes = self._without_a_node()
        sentences = [each.reason for each in nodes if each.considered] or self._nobody(nodes[:1])
        sentences += [each.shortage for each in short if each.shortage is not None]
        sentences += [f"{each.target} {each.reason}" for each in self.passed_over() if each.target.startswith("N-")]
        if not sentences:
            return self.class_decision.reason
        return "; ".join(sentences + [f"{row.resource_class}: {self._barred(row)}" for row in self._kept_out()])

    def _kept_out(self) -> list[ClassRow]:
        """The classes that serve the model, but not at this privacy or these limits."""
        return [
            row
            for row in self.class_decision.rows
            if row.state.supported and any(each in row.exclusions for each in KEEPS_OUT)
        ]

    def _barred(self, row: ClassRow) -> str:
        said = KEEPS_OUT[next(each for each in row.exclusions if each in KEEPS_OUT)]
        wider = " or ".join(level for level in Privacy if may_see(row.resource_class, level))
        return said.format(privacy=self.class_decision.privacy, wider=wider)

    def _nobody(self, nodes: Sequence[NodeDecision | AutoNodeDecision]) -> list[str]:
        """No node may be asked. `no node has joined` would be untrue while there are some that the request keeps out."""
        kept_out = (self.prospects[row.resource_class].node_decision for row in self._kept_out())
        if nodes and any(each is not None and each.considered for each in kept_out):
            pinned = nodes[0].request.node
            if pinned is not None:
                return [f"{ResourceClass.CLOUD_GPU}: {pinned} is no node of the operator's own"]
            return [f"{ResourceClass.CLOUD_GPU}: no node of the operator's own has joined"]
        return [each.reason for each in nodes]

    def to_dict(self) -> dict[str, Any]:
        """As errors show it: the class decision, and who was passed over."""
        return {
            "class": self.class_decision.to_dict(),
            "passed_over": [each.to_dict() for each in self.passed_over()],
        }


@dataclass(frozen=True, slots=True)
class _Question:
    """What many requests ask alike, and what the class router made of it lately."""

    query: Query
    within: Query
    """The same, within the request's `max_cost_usd`."""
    class_request: ClassRequest
    decisions: Bounded[tuple[int, ...], ClassDecision] = field(default_factory=partial(Bounded, DECISIONS))


@dataclass(frozen=True, slots=True)
class Decider:
    """The routers over the live classes.

    Attributes:
        backends: each class once.
        catalog: the models that nodes may serve.
        community_first: the operator's COMMUNITY rule.
        wait_s: how long a request may wait for capacity, in seconds.
    """

    backends: Sequence[ClassBackend]
    catalog: Catalog
    community_first: CommunityFirst
    wait_s: float = 10.0
    _by_class: Mapping[ResourceClass, ClassBackend] = field(init=False, compare=False)
    _questions: Bounded[tuple[object, ...], _Question] = field(init=False, default_factory=Bounded, compare=False)
    _node_requests: Bounded[NodeRequest, NodeRequest] = field(init=False, default_factory=Bounded, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_class", {backend.resource_class: backend for backend in self.backends})

    def decide(self, request: ApiRequest, caller: Caller) -> Decision:
        """Both decisions, now.

        Raises:
            ApiError: 404 for a model nobody offers, 400 for a privacy level that contradicts the model.
        """
        question = self._question(request, caller)
        query, tokens, body = question.query, _output_tokens(request), request.body
        prospects: dict[ResourceClass, Prospect] = {}
        for resource_class, backend in self._by_class.items():
            prospect = backend.prospect(query, tokens, body)
            if is_over(prospect.state.cost_usd, question.within.max_cost_usd):
                within = backend.prospect(question.within, tokens, body)
                prospect = within if within.state.available or within.wait_s > 0 else prospect
            prospects[resource_class] = prospect
        # A class that stands where it stood has the same object for its state, kept alive by the decision.
        key = tuple(map(id, map(_STATE, prospects.values())))
        decision = question.decisions.get(key)
        if decision is None:
            states = [prospect.state for prospect in prospects.values()]
            decision = question.decisions.keep(key, self._decide_class(request, question.class_request, states))
        return Decision(query, decision, prospects)

    def _decide_class(self, request: ApiRequest, asked: ClassRequest, states: Sequence[ClassState]) -> ClassDecision:
        if not any(state.supported for state in states):
            raise self._unknown(request)
        decision = decide_class(asked, states, self.community_first)
        if decision.privacy_conflict:
            raise fault(
                "privacy_conflict",
                f"{decision.privacy} does not allow any class that serves {request.model}; ask for PUBLIC, or for "
                "another model",
                param="privacy",
                brain={"decision": {"class": decision.to_dict()}},
            )
        return decision

    def _question(self, request: ApiRequest, caller: Caller) -> _Question:
        path, wishes = request.dialect.path, request.wishes
        key = (request.model, path, wishes, caller.plan)
        found = self._questions.get(key)
        if found is not None:
            return found
        class_request = ClassRequest(
            mode=wishes.mode,
            privacy=wishes.privacy,
            plan=caller.plan,
            max_cost_usd=wishes.max_cost_usd,
            max_latency_ms=wishes.max_latency_ms,
            names_node_model=request.model in self.catalog,
        )
        node_request = NodeRequest(
            region=wishes.region,
            require_region=wishes.require_region,
            max_ask_usd_per_1m=wishes.max_ask_usd_per_1m,
            node=wishes.node,
        )
        query = Query(
            model=request.model,
            path=path,
            # Requests that differ in what nodes have nothing to do with share the decisions among nodes.
            node_request=self._node_requests.get(node_request) or self._node_requests.keep(node_request, node_request),
            mode=resolve_mode(class_request, self.community_first),
            wait_s=self.wait_s,
        )
        within = replace(query, max_cost_usd=wishes.max_cost_usd)
        return self._questions.keep(key, _Question(query, within, class_request))

    def target(
        self, request: ApiRequest, decision: Decision, passed: Set[str], *, failed: bool = False
    ) -> Target | None:
        """The best target, class by class, whose name is not among the `passed`; `None` when none is left.

        A class is known by the cost of its first target. The next ones may be dearer, and the client's limit holds for each.

        Args:
            request: what is asked.
            decision: about it.
            passed: names of targets that are not to be asked, or not again.
            failed: a target was asked already, and could not answer.
        """
        query, prospects, most_usd = decision.query, decision.prospects, request.wishes.max_cost_usd
        for resource_class in decision.class_decision.fallback if failed else decision.class_decision.ranked:
            backend, prospect = self._by_class[resource_class], prospects[resource_class]
            found = backend.target(query, prospect, passed)
            while found is not None and most_usd is not None and _is_over(request, found, most_usd):
                passed = passed | {found.name}
                found = backend.target(query, prospect, passed)
            if found is not None:
                return found
        return None

    def whole(
        self, decision: Decision, decided: NodeDecision | AutoNodeDecision
    ) -> Callable[[], NodeDecision | AutoNodeDecision]:
        """Makes one of its node decisions again with every node in it; a thread may do it."""
        whose = next(each for each, prospect in decision.prospects.items() if prospect.node_decision is decided)
        return self._by_class[whose].whole(decision.query, decided)

    def full(self, decision: Decision) -> Set[str]:
        """Names of targets that lacked nothing but a free slot, in the classes that the request may use."""
        usable, prospects = decision.class_decision.usable, decision.prospects
        return frozenset[str]().union(*(self._by_class[each].full(prospects[each]) for each in usable))

    def models(self) -> dict[str, list[str]]:
        """Every model on offer, with the classes that offer it."""
        offers: dict[str, list[str]] = {}
        for backend in self.backends:
            for model in backend.models():
                offers.setdefault(model, []).append(str(backend.resource_class))
        return offers

    def _unknown(self, request: ApiRequest) -> ApiError:
        offered = self.models()
        if request.model in offered and request.wishes.node is not None and request.model not in self.catalog:
            sentence = f"no Brain Node serves {request.model}, so none can be named for it; leave out `node`"
            return fault("not_found", sentence, param="node")
        if request.model in offered or request.model in self.catalog or request.model == AUTO_MODEL:
            return fault("not_found", f"no class offers {request.dialect.path} for {request.model}", param="model")
        return fault(
            "model_not_found",
            f"the model {request.model} is not known here{self.hint(request.model, offered)}",
            param="model",
        )

    def hint(self, model: str, offered: Iterable[str]) -> str:
        """The names that somebody may have meant, as the end of a sentence; what is offered comes first."""
        near = list(dict.fromkeys([*nearest(model, offered), *self.catalog.nearest(model)]))[:SUGGESTED]
        return f"; the nearest names are {', '.join(near)}" if near else ""


def _output_tokens(request: ApiRequest) -> int:
    """How many tokens the answer may have, for an estimate of its cost."""
    limit = request.max_output_tokens
    return 0 if not request.dialect.streams else OUTPUT_TOKENS if limit is None else limit


def _is_over(request: ApiRequest, target: Target, most_usd: float) -> bool:
    """Whether a target is known to cost more than this for the request."""
    tokens = tokens_of(request.body), _output_tokens(request)
    cost_usd = target.prices.cost_usd(request.dialect.path, *tokens)
    return is_over(cost_usd, most_usd)
