"""BROWSER_NETWORK: browser tabs that lend their GPU, as the class router sees them.

What tabs can do is told by the browser room through `BrowserWork`; a class knows nothing of sessions and kernels.
"""

from collections.abc import Iterator
from typing import Protocol

from brain_coord.classes.backend import Prospect, Query
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.routing.bounded import Bounded
from brain_coord.routing.inputs import AUTO_MODEL, ClassState
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import ResourceClass

NO_TAB = "BROWSER_NETWORK: no tab online"
COMPUTE_PATH = "/v1/compute/matmul"


class BrowserWork(Protocol):
    """What tabs can do now."""

    def models(self) -> list[str]:
        """Language models that can be chatted with now."""

    def supports(self, query: Query) -> bool:
        """Whether tabs may come that can do this; for `brain/auto`, whether one is there."""

    def decide(self, query: Query) -> NodeDecision | None:
        """The node router's decision for the first tab that the work needs; `None` when there is none to make."""

    def shortage(self, query: Query) -> str:
        """Why the work cannot be done now, in words."""

    def targets(self, query: Query) -> Iterator[Target]:
        """Who would answer a chat now."""


class BrowserClass:
    """The tabs that are online. Chats and products have samples of their own: their times have nothing in common."""

    resource_class = ResourceClass.BROWSER_NETWORK

    def __init__(self) -> None:
        self.samples = ClassSamples()
        self.compute = ClassSamples()
        self.work: BrowserWork | None = None
        self._nobody: Bounded[tuple[object, ...], Prospect] = Bounded()

    def models(self) -> list[str]:
        """What can be chatted with now."""
        return [] if self.work is None else self.work.models()

    def prospect(self, query: Query) -> Prospect:
        """By the node router over the tabs that hold what the request needs."""
        if self.work is None:
            state = ClassState(self.resource_class, supported=query.model == AUTO_MODEL, available=False)
            return Prospect(state, shortage=NO_TAB)
        decision = self.work.decide(query)
        available = decision is not None and bool(decision.ranked)
        samples = self.compute if query.path == COMPUTE_PATH else self.samples
        shortage = None if available else f"BROWSER_NETWORK: {self.work.shortage(query)}"
        waits = decision is not None and decision.worth_waiting
        supported = self.work.supports(query)
        key = (supported, shortage, *samples.estimates)
        if shortage is not None and not waits and (known := self._nobody.get(key)) is not None:
            return known
        state = ClassState(
            self.resource_class,
            supported=supported,
            available=available,
            latency_ms=samples.latency_ms,
            reliability=samples.reliability,
            confidence=samples.confidence,
        )
        if shortage is not None and not waits:
            return self._nobody.keep(key, Prospect(state, shortage=shortage))
        return Prospect(
            state, decision if available else None, wait_s=query.wait_s if waits else 0.0, shortage=shortage
        )

    def targets(self, query: Query, prospect: Prospect) -> Iterator[Target]:
        """The tabs that answer together."""
        del prospect
        return iter(()) if self.work is None else self.work.targets(query)
