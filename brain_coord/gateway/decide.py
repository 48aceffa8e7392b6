"""Ask every class for its prospect and let the routers decide; nothing is reserved here."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from brain_coord.classes.backend import ClassBackend, Prospect, Query
from brain_coord.classes.health import PassedOver
from brain_coord.classes.target import Target
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.request import ApiRequest
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.class_decision import ClassDecision, ClassRow
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.dry_run import Routing
from brain_coord.routing.inputs import AUTO_MODEL, ClassRequest, NodeRequest
from brain_coord.routing.modes import resolve_mode
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, Mode, ResourceClass
from brain_node.contract.catalog import Catalog
from brain_node.contract.nearest import SUGGESTED, nearest

OUTPUT_TOKENS: Final = 512
"""Length of an answer, for a cost estimate, when the client set no limit."""

BYTES_PER_TOKEN: Final = 4

KEEPS_OUT: Final = {
    Exclusion.PRIVACY: "privacy {privacy} does not allow it",
    Exclusion.OVER_MAX_COST: "costs more than max_cost_usd",
    Exclusion.OVER_MAX_LATENCY: "slower than max_latency_ms",
}
"""What a request itself may hold against a class, in words; that it asked for BROWSER_ONLY it knows."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Both decisions for one request at one moment."""

    query: Query
    class_decision: ClassDecision
    prospects: dict[ResourceClass, Prospect]

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

    def routing(self, resource_class: ResourceClass | None = None) -> Routing:
        """Both decisions, with the node decision of a class: of the selected one by default, else of one that is short."""
        chosen = resource_class or self.class_decision.selected
        if chosen is not None:
            return Routing(self.class_decision, self.prospects[chosen].node_decision)
        short = [each.node_decision for each in self._short_of_capacity() if each.node_decision is not None]
        return Routing(self.class_decision, next((each for each in short if each.considered), next(iter(short), None)))

    def sentence(self) -> str:
        """One line on how the request is routed, or why it cannot be, and on who was passed over."""
        selected = self.class_decision.selected
        if selected is None:
            return self.shortage()
        choice = self.prospects[selected].choice
        sentence = self.routing().sentence if choice is None else f"{self.class_decision.reason} → {choice}"
        over = "; ".join(f"{each.target} {each.reason}" for each in self.passed_over())
        return f"{sentence} [passed over: {over}]" if over else sentence

    def passed_over(self) -> list[PassedOver]:
        """Targets of classes the request may use that were left out, or put last, for what they did lately."""
        if not any(prospect.passed_over for prospect in self.prospects.values()):
            return []
        open_to_it = [row for row in self.class_decision.rows if row.exclusions in ((), (Exclusion.UNAVAILABLE,))]
        return [each for row in open_to_it for each in self.prospects[row.resource_class].passed_over]

    def shortage(self) -> str:
        """Why nobody can take it: the sentence on nodes first, then what other classes say of themselves.

        Classes that the request itself keeps out are named too: with them it might have been served.
        """
        short = self._short_of_capacity()
        nodes = [each.node_decision for each in short if each.node_decision is not None]
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
        return said.format(privacy=self.class_decision.privacy)

    def _nobody(self, nodes: Sequence[NodeDecision | AutoNodeDecision]) -> list[str]:
        """No node may be asked. `no node has joined` would be untrue while there are some that the request keeps out."""
        kept_out = (self.prospects[row.resource_class].node_decision for row in self._kept_out())
        if nodes and any(each is not None and each.considered for each in kept_out):
            return [f"{ResourceClass.CLOUD_GPU}: no node of the operator's own has joined"]
        return [each.reason for each in nodes]

    def to_dict(self) -> dict[str, Any]:
        """As errors show it: the class decision, and who was passed over."""
        return {
            "class": self.class_decision.to_dict(),
            "passed_over": [each.to_dict() for each in self.passed_over()],
        }


@dataclass(frozen=True, slots=True)
class _Asked:
    """What many requests ask alike, and what the class router made of it lately."""

    class_request: ClassRequest
    node_request: NodeRequest
    mode: Mode
    decisions: Bounded[tuple[int, ...], ClassDecision] = field(default_factory=Bounded)


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
    _asked: Bounded[tuple[object, ...], "_Asked"] = field(init=False, default_factory=Bounded, compare=False)

    def decide(self, request: ApiRequest, caller: Caller) -> Decision:
        """Both decisions, now.

        Raises:
            ApiError: 404 for a model nobody offers, 400 for a privacy level that contradicts the model.
        """
        asked = self._asking(request, caller)
        limit = request.max_output_tokens if request.dialect.streams else 0
        query = Query(
            model=request.model,
            path=request.dialect.path,
            node_request=asked.node_request,
            mode=asked.mode,
            prompt_tokens=_prompt_bytes(request.body) // BYTES_PER_TOKEN + 1,
            output_tokens=OUTPUT_TOKENS if limit is None else limit,
            wait_s=self.wait_s,
        )
        prospects = {backend.resource_class: backend.prospect(query) for backend in self.backends}
        states = [prospect.state for prospect in prospects.values()]
        key = tuple(map(id, states))  # a class that stands where it stood is the same object, kept by the decision
        decision = asked.decisions.get(key)
        if decision is None:
            if not any(state.supported for state in states):
                raise self._unknown(request)
            decision = decide_class(asked.class_request, states, self.community_first)
            asked.decisions.keep(key, decision)
        if decision.privacy_conflict:
            raise fault(
                "privacy_conflict",
                f"{decision.privacy} does not allow any class that serves {request.model}; ask for PUBLIC, or for "
                "another model",
                param="privacy",
                brain={"decision": {"class": decision.to_dict()}},
            )
        return Decision(query, decision, prospects)

    def _asking(self, request: ApiRequest, caller: Caller) -> "_Asked":
        wishes = request.wishes
        key = (request.model, wishes, caller.plan)
        asked = self._asked.get(key)
        if asked is None:
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
            mode = resolve_mode(class_request, self.community_first)
            asked = self._asked.keep(key, _Asked(class_request, node_request, mode))
        return asked

    def targets(self, decision: Decision) -> Iterator[Target]:
        """Every target in ranked order, class by class."""
        for resource_class in decision.class_decision.ranked:
            backend = next(each for each in self.backends if each.resource_class is resource_class)
            yield from backend.targets(decision.query, decision.prospects[resource_class])

    def models(self) -> dict[str, list[str]]:
        """Every model on offer, with the classes that offer it."""
        offers: dict[str, list[str]] = {}
        for backend in self.backends:
            for model in backend.models():
                offers.setdefault(model, []).append(str(backend.resource_class))
        return offers

    def _unknown(self, request: ApiRequest) -> ApiError:
        offered = self.models()
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


_BASE64: Final = b";base64,"


def _prompt_bytes(body: bytes) -> int:
    """Size of a request without the images and sounds in it, which are no text of their length."""
    size, at = len(body), body.find(_BASE64)
    while at >= 0:
        end = body.find(b'"', at)
        if end < 0:
            break
        size -= end - at
        at = body.find(_BASE64, end)
    return size
