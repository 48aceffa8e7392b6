"""BROWSER_NETWORK: browser tabs that lend their GPU. No tab can join yet, and the class says so."""

from collections.abc import Iterator

from brain_coord.classes.backend import Prospect, Query
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.routing.inputs import AUTO_MODEL, ClassState
from brain_coord.routing.vocabulary import ResourceClass

NO_TAB = "BROWSER_NETWORK: no tab online"


class BrowserClass:
    """The tabs that are online: none."""

    resource_class = ResourceClass.BROWSER_NETWORK

    def __init__(self) -> None:
        self.samples = ClassSamples()

    def models(self) -> list[str]:
        """Without a tab, none."""
        return []

    def prospect(self, query: Query) -> Prospect:
        """Unavailable; for `brain/auto` that is all that is wrong."""
        state = ClassState(self.resource_class, supported=query.model == AUTO_MODEL, available=False)
        return Prospect(state, shortage=NO_TAB)

    def targets(self, query: Query, prospect: Prospect) -> Iterator[Target]:
        """Nobody."""
        del query, prospect
        return iter(())
