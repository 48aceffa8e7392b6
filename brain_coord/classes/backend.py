"""What every resource class offers to the gateway: an estimate for a request, and ranked targets."""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from brain_coord.classes.health import PassedOver
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.classes.upstream import Offer
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.inputs import ClassState, NodeRequest
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import Mode, ResourceClass

PASSED_OVER_SHOWN: Final = 20

OUTPUT_TOKENS: Final = 512
"""Length of an answer, for a cost estimate, when the client set no limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What a class has to know of a request to estimate it.

    Requests that ask alike share one, and it compares by identity: so a class can keep its answer by it.

    Attributes:
        model: as the client named it, `brain/auto` included.
        path: the route, for classes that offer only some.
        node_request: region, budget and pinned node.
        mode: the one that holds; a class with several targets ranks them by it.
        wait_s: how long the request may wait for a slot, in seconds.
        max_cost_usd: leaves out whom it is known to cost more with; asked with it is a class whose best target does.
    """

    model: str
    path: str
    node_request: NodeRequest
    mode: Mode = Mode.AUTO
    wait_s: float = 0.0
    max_cost_usd: float | None = None


class Prospect(NamedTuple):
    """One class's answer to a query: its state for the class router, and whom it would ask.

    Class decisions are looked up by its state, by identity: so a class keeps the states that come again.

    Attributes:
        state: for the class router.
        node_decision: among Brain Nodes, where the class has any to ask.
        wait_s: for how long it is worth to wait, in seconds; 0 where waiting would not help.
        passed_over: targets that are left out, or asked last, for what they did lately.
        choice: whom it would ask, in words, when that is no Brain Node.
        shortage: why it can ask nobody, in words, where the node decision does not say it.
        ranking: of the class's own kind, for its `targets`.
    """

    state: ClassState
    node_decision: NodeDecision | AutoNodeDecision | None = None
    wait_s: float = 0.0
    passed_over: tuple[PassedOver, ...] = ()
    choice: str | None = None
    shortage: str | None = None
    ranking: Any = None


class ClassBackend(Protocol):
    """One resource class."""

    @property
    def resource_class(self) -> ResourceClass:
        """Which one it is."""

    @property
    def samples(self) -> ClassSamples:
        """What it knows of its own requests."""

    @property
    def configured(self) -> bool:
        """Whether its hardware was set up at all; a network of strangers needs no setting up."""

    def models(self) -> list[str]:
        """The model ids it offers now."""

    def offers(self) -> Iterable[Offer]:
        """The models that its operator offers at a price and a quality of his own: those of servers and services."""

    def prospect(self, query: Query, output_tokens: int = OUTPUT_TOKENS, body: bytes = b"") -> Prospect:
        """How it would serve the query now. Pure bookkeeping; nothing is reserved.

        Args:
            query: what is asked.
            output_tokens: how many the answer may have, for a class that charges by them.
            body: of the request, for a class to which its length matters.
        """

    def target(self, query: Query, prospect: Prospect, passed: Set[str]) -> Target | None:
        """The best ranked target that can still take a job now, `None` when there is none.

        Args:
            query: what was asked.
            prospect: the class's answer to it.
            passed: names of targets that are not to be asked, or not again.
        """

    def full(self, prospect: Prospect) -> Set[str]:
        """Names of targets that lacked nothing but a free slot for the query that the prospect answers."""

    def whole(
        self, query: Query, decided: NodeDecision | AutoNodeDecision
    ) -> Callable[[], NodeDecision | AutoNodeDecision]:
        """Makes its node decision again with every node in it, where it only counts some; a thread may do it."""
