"""BROWSER_NETWORK: browser tabs that lend their GPU, as the class router sees them.

What tabs can do is told by the browser room through `BrowserWork`; a class knows nothing of sessions and kernels.
"""

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from brain_coord.classes.backend import OUTPUT_TOKENS, Prospect, Query
from brain_coord.classes.samples import ClassSamples, Estimates
from brain_coord.classes.target import Target
from brain_coord.classes.upstream import Offer
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.inputs import AUTO_MODEL, ClassState
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import ResourceClass

NO_TAB = "BROWSER_NETWORK: no tab online"
COMPUTE_PATH = "/v1/compute/matmul"


class BrowserWork(Protocol):
    """What tabs can do now."""

    @property
    def online(self) -> bool:
        """Whether any tab is here."""

    def models(self) -> list[str]:
        """Language models that can be chatted with now."""

    def supports(self, query: Query) -> bool:
        """Whether tabs may come that can do this; for `brain/auto`, whether one is there."""

    def decide(self, query: Query) -> NodeDecision | None:
        """The node router's decision for the first tab that the work needs; `None` when there is none to make."""

    def target(self, query: Query) -> Target | None:
        """Who would answer a chat now."""


class BrowserClass:
    """The tabs that are online. Chats and products have samples of their own: their times have nothing in common."""

    resource_class = ResourceClass.BROWSER_NETWORK
    configured = True
    """Whoever opens the page may lend."""

    def __init__(self) -> None:
        self.samples = ClassSamples()
        self.compute = ClassSamples()
        self.work: BrowserWork | None = None
        self._kept: Bounded[tuple[Estimates, str | None, bool], Prospect] = Bounded()

    def models(self) -> list[str]:
        """What can be chatted with now."""
        return [] if self.work is None else self.work.models()

    def offers(self) -> Iterable[Offer]:
        """None: tabs ask no price."""
        return ()

    def prospect(self, query: Query, output_tokens: int = OUTPUT_TOKENS, body: bytes = b"") -> Prospect:
        """By the node router over the tabs that hold what the request needs."""
        del output_tokens, body
        work = self.work
        estimates = (self.compute if query.path == COMPUTE_PATH else self.samples).estimates
        if not (query.model == AUTO_MODEL if work is None else work.supports(query)):
            return self._unable(estimates, supported=False)
        if work is None or not work.online:
            return self._unable(estimates, NO_TAB)
        decision = work.decide(query)
        if decision is not None and decision.ranked:
            return Prospect(self._state(estimates, available=True), decision)
        shortage = f"BROWSER_NETWORK: {'no model is held by tabs' if decision is None else decision.reason}"
        if decision is None or not decision.worth_waiting:
            return self._unable(estimates, shortage)
        return Prospect(self._state(estimates), wait_s=query.wait_s, shortage=shortage)

    def _unable(self, estimates: Estimates, shortage: str | None = None, *, supported: bool = True) -> Prospect:
        """Nothing can be done and nothing comes of waiting: on most coordinators, the answer to every request."""
        key = (estimates, shortage, supported)
        found = self._kept.get(key)
        return found or self._kept.keep(key, Prospect(self._state(estimates, supported=supported), shortage=shortage))

    def _state(self, estimates: Estimates, *, supported: bool = True, available: bool = False) -> ClassState:
        latency_ms, reliability, confidence = estimates
        return ClassState(
            self.resource_class,
            supported,
            available,
            latency_ms=latency_ms,
            reliability=reliability,
            confidence=confidence,
        )

    def target(self, query: Query, prospect: Prospect, passed: Set[str]) -> Target | None:
        """The tabs that answer together."""
        del prospect
        found = None if self.work is None else self.work.target(query)
        return None if found is None or found.name in passed else found

    def full(self, prospect: Prospect) -> Set[str]:
        """All tabs answer together, so there is no other one to wait for."""
        del prospect
        return frozenset()

    def whole(
        self, query: Query, decided: NodeDecision | AutoNodeDecision
    ) -> Callable[[], NodeDecision | AutoNodeDecision]:
        """As it is: every tab is in it."""
        del query
        return lambda: decided
