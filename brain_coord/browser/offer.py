"""What the tabs offer to the class router: products always, chats with the models whose stages they hold."""

from dataclasses import dataclass, field
from typing import Final

from brain_coord.browser.chat import TabsTarget
from brain_coord.browser.holders import StageKeeper
from brain_coord.browser.jobs import Dispatcher
from brain_coord.browser.models import BrowserModel
from brain_coord.browser.pipeline import decide_stage
from brain_coord.browser.tab import MATMUL
from brain_coord.classes.backend import Query
from brain_coord.classes.browser import COMPUTE_PATH
from brain_coord.classes.health import HealthBook
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.routing.inputs import AUTO_MODEL
from brain_coord.routing.node_decision import NodeDecision

CHAT_PATH: Final = "/v1/chat/completions"


@dataclass(slots=True)
class BrowserOffer:
    """Implements `BrowserWork`."""

    dispatcher: Dispatcher
    keeper: StageKeeper
    samples: ClassSamples
    health: HealthBook = field(default_factory=HealthBook)

    @property
    def online(self) -> bool:
        """Whether any tab is here."""
        return self.dispatcher.tabs.anybody

    def models(self) -> list[str]:
        """Models of which every stage is held."""
        return [model_id for model_id, model in sorted(self.keeper.shelf.models.items()) if self.keeper.held(model)]

    def supports(self, query: Query) -> bool:
        """Products; chats with a model that was added; and `brain/auto` lacks nothing but tabs."""
        model = query.model
        if query.path != CHAT_PATH:
            return query.path == COMPUTE_PATH and model == MATMUL
        if query.node_request.node is not None:
            return False  # a pinned node is the only candidate
        return model in self.keeper.shelf.models or model == AUTO_MODEL

    def _model(self, query: Query) -> BrowserModel | None:
        if not self.supports(query) or query.path != CHAT_PATH:
            return None
        held = self.models()
        named = (held[0] if held else None) if query.model == AUTO_MODEL else query.model
        return None if named is None else self.keeper.shelf.models[named]

    def decide(self, query: Query) -> NodeDecision | None:
        """The tab that would take the first unit or stage; for a chat, of the first stage that nobody can take."""
        if query.path == COMPUTE_PATH:
            return self.dispatcher.decide()
        model = self._model(query)
        if model is None:
            return None
        decisions = [decide_stage(self.dispatcher.tabs, stage, query.node_request) for stage in model.stages]
        return next((decision for decision in decisions if not decision.ranked), decisions[0])

    def target(self, query: Query) -> Target | None:
        """The tabs that hold the model together."""
        model = self._model(query)
        if model is None or not self.keeper.held(model):
            return None
        health = self.health.of(f"tabs:{model.model_id}")
        speech = self.keeper.shelf.speech[model.model_id]
        return TabsTarget(
            self.dispatcher.tabs,
            self.keeper,
            model,
            speech,
            self.samples,
            health,
            query.node_request,
            others_may=query.model == AUTO_MODEL,
        )
