"""What the tabs offer to the class router: products always, chats with the models whose stages they hold."""

from collections.abc import Iterator
from dataclasses import dataclass

from brain_coord.browser.jobs import Dispatcher
from brain_coord.browser.tab import MATMUL
from brain_coord.classes.backend import Query
from brain_coord.classes.browser import COMPUTE_PATH
from brain_coord.classes.target import Target
from brain_coord.routing.inputs import AUTO_MODEL
from brain_coord.routing.node_decision import NodeDecision


@dataclass(slots=True)
class BrowserOffer:
    """Implements `BrowserWork`."""

    dispatcher: Dispatcher

    def models(self) -> list[str]:
        """None yet."""
        return []

    def supports(self, query: Query) -> bool:
        """Products; and `brain/auto` lacks nothing but tabs."""
        return query.model in (MATMUL, AUTO_MODEL) if query.path == COMPUTE_PATH else query.model == AUTO_MODEL

    def decide(self, query: Query) -> NodeDecision | None:
        """For a product, the tab that would take its first unit."""
        return self.dispatcher.decide() if query.path == COMPUTE_PATH else None

    def shortage(self, query: Query) -> str:
        """In words."""
        return self.dispatcher.shortage() if query.path == COMPUTE_PATH or not self._online else "no tab holds a model"

    @property
    def _online(self) -> bool:
        return bool(self.dispatcher.tabs.online)

    def targets(self, query: Query) -> Iterator[Target]:
        """Nobody yet."""
        del query
        return iter(())
