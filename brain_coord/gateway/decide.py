"""Ask every class for its prospect and let the routers decide; nothing is reserved here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from brain_coord.classes.backend import ClassBackend, Prospect, Query
from brain_coord.classes.target import Target
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.request import ApiRequest
from brain_coord.routing.class_decision import ClassDecision
from brain_coord.routing.class_router import decide_class
from brain_coord.routing.dry_run import Routing
from brain_coord.routing.inputs import AUTO_MODEL, ClassRequest, NodeRequest
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, ResourceClass
from brain_node.contract.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Decision:
    """Both decisions for one request at one moment."""

    query: Query
    class_decision: ClassDecision
    prospects: dict[ResourceClass, Prospect]

    @property
    def worth_waiting(self) -> bool:
        """Whether a class lacks nothing but a free slot."""
        return any(
            row.exclusions == (Exclusion.UNAVAILABLE,) and self.prospects[row.resource_class].worth_waiting
            for row in self.class_decision.rows
        )

    def routing(self, resource_class: ResourceClass | None = None) -> Routing:
        """Both decisions, with the node decision of a class (of the selected one by default)."""
        chosen = resource_class or self.class_decision.selected
        return Routing(self.class_decision, None if chosen is None else self.prospects[chosen].node_decision)

    def sentence(self) -> str:
        """One line on how the request is routed, or why it cannot be."""
        if self.class_decision.selected is None:
            return self.node_sentence() or self.class_decision.reason
        return self.routing().sentence

    def node_sentence(self) -> str | None:
        """Why no node can take it, from the first class with nodes that could be meant."""
        decisions = [
            self.prospects[row.resource_class].node_decision for row in self.class_decision.rows if row.state.supported
        ]
        return next((each.reason for each in decisions if each is not None and each.considered), None) or next(
            (each.reason for each in decisions if each is not None), None
        )


@dataclass(frozen=True, slots=True)
class Decider:
    """The routers over the live classes."""

    backends: Sequence[ClassBackend]
    catalog: Catalog
    community_first: CommunityFirst

    def decide(self, request: ApiRequest, caller: Caller) -> Decision:
        """Both decisions, now.

        Raises:
            ApiError: 404 for a model nobody offers, 400 for a privacy level that contradicts the model.
        """
        wishes = request.wishes
        query = Query(
            model=request.model,
            path=request.dialect.path,
            node_request=NodeRequest(
                region=wishes.region,
                require_region=wishes.require_region,
                max_ask_usd_per_1m=wishes.max_ask_usd_per_1m,
                node=wishes.node,
            ),
        )
        prospects = {backend.resource_class: backend.prospect(query) for backend in self.backends}
        class_request = ClassRequest(
            mode=wishes.mode,
            privacy=wishes.privacy,
            plan=caller.plan,
            max_cost_usd=wishes.max_cost_usd,
            max_latency_ms=wishes.max_latency_ms,
            names_node_model=request.model in self.catalog,
        )
        states = [prospect.state for prospect in prospects.values()]
        if not any(state.supported for state in states):
            raise self._unknown(request)
        decision = decide_class(class_request, states, self.community_first)
        if decision.privacy_conflict:
            raise fault(
                "privacy_conflict",
                f"{decision.privacy} does not allow any class that serves {request.model}; ask for PUBLIC, or for "
                "another model",
                param="privacy",
                brain={"decision": {"class": decision.to_dict()}},
            )
        return Decision(query, decision, prospects)

    def targets(self, decision: Decision) -> Iterator[Target]:
        """Every target in ranked order, class by class."""
        backends = {backend.resource_class: backend for backend in self.backends}
        for resource_class in decision.class_decision.ranked:
            yield from backends[resource_class].targets(decision.query, decision.prospects[resource_class])

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
        near = self.catalog.nearest(request.model)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        return fault("model_not_found", f"the model {request.model} is not known here{hint}", param="model")
