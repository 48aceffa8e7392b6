"""What every resource class offers to the gateway: an estimate for a request, and ranked targets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.inputs import ClassState, NodeRequest
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import ResourceClass


@dataclass(frozen=True, slots=True)
class Query:
    """What a class has to know of a request to estimate it.

    Attributes:
        model: as the client named it, `brain/auto` included.
        path: the route, for classes that offer only some.
        node_request: region, budget and pinned node.
        output_tokens: how many tokens the answer may have, a guess where the client set no limit.
    """

    model: str
    path: str
    node_request: NodeRequest
    output_tokens: int = 512


@dataclass(frozen=True, slots=True)
class Prospect:
    """One class's answer to a query: its state for the class router, and whom it would ask."""

    state: ClassState
    node_decision: NodeDecision | AutoNodeDecision | None = None

    @property
    def worth_waiting(self) -> bool:
        """Whether a free slot is all that is missing."""
        return self.node_decision is not None and self.node_decision.worth_waiting


class ClassBackend(Protocol):
    """One resource class."""

    resource_class: ResourceClass
    samples: ClassSamples

    def models(self) -> list[str]:
        """The model ids it offers now."""

    def prospect(self, query: Query) -> Prospect:
        """How it would serve the query now. Pure bookkeeping; nothing is reserved."""

    def targets(self, query: Query, prospect: Prospect) -> Iterator[Target]:
        """Targets in ranked order; looked up when asked for, so that one which went away meanwhile is passed over."""
