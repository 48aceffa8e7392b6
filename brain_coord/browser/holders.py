"""Which tab holds which stage: stages are given to tabs as they come and go."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import structlog

from brain_coord.browser.agreement import Numbers, Question
from brain_coord.browser.comparisons import RETRY_S, Comparisons
from brain_coord.browser.models import BrowserModel, Stage
from brain_coord.browser.shelf import Shelf
from brain_coord.browser.spread import next_move, surplus
from brain_coord.browser.stage_work import StageDesk
from brain_coord.browser.tab import MATMUL, Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import WorkFault
from brain_coord.routing.inputs import ModelNeed, NodeRequest
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.vocabulary import Liveness

log = structlog.get_logger("brain.browser")

LOOK_S: Final = 0.5
FILES_S: Final = 2.0


@dataclass(slots=True)
class StageKeeper:
    """Gives stages to tabs: every stage first, then replicas, then so that no tab holds much more than another."""

    tabs: Tabs
    shelf: Shelf
    desk: StageDesk
    comparisons: Comparisons = field(init=False)
    _used: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Running answers by tab and stage."""
    _retired: set[tuple[str, str]] = field(default_factory=set)
    """Tabs and stages that get no new answers; dropped once no answer runs on them."""
    _offered: dict[str, Stage] = field(default_factory=dict)
    """By name, as at the last look: what tabs have of these is this."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.comparisons = Comparisons(self.tabs, self.desk)

    def left(self, tab: Tab) -> None:
        """The tab is gone, and with it what it held."""
        self.comparisons.left(tab)
        self._retired = {(tab_id, name) for tab_id, name in self._retired if tab_id != tab.tab_id}

    def holders(self, stage: Stage) -> list[Tab]:
        """The tabs that hold a stage and may be asked for it."""
        return [tab for tab in self.tabs.online if stage.name in tab.stages]

    def held(self, model: BrowserModel) -> bool:
        """Whether somebody holds every stage."""
        return all(self.holders(stage) for stage in model.stages)

    def use(self, tab: Tab, stages: Iterable[Stage]) -> None:
        """An answer begins to run on these; `unuse` follows."""
        self._used.update((tab.tab_id, stage.name) for stage in stages)

    def unuse(self, tab: Tab, stages: Iterable[Stage]) -> None:
        """It runs on them no more."""
        self._used.subtract((tab.tab_id, stage.name) for stage in stages)
        self._used += Counter()

    def unable(self, tab: Tab, stages: Iterable[Stage]) -> None:
        """It made nothing of these that could be used: they are for others, else every answer would first come to it."""
        for stage in stages:
            self._retire(tab, stage.name)
            self.comparisons.suspend(tab, stage.name, RETRY_S)

    # --- who holds what ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Give stages out for ever."""
        looked = -FILES_S
        while True:
            if monotonic() - looked >= FILES_S:
                looked = monotonic()
                await self.shelf.look()
            self._give_out()
            self._drop_retired()
            await asyncio.sleep(LOOK_S)

    def _withdraw(self) -> None:
        """Let go what is offered no more, or stands for other weights now: the name alone does not tell."""
        offered = {stage.name: stage for _, stage in self.shelf.stages()}
        for name, stage in self._offered.items():
            if offered.get(name) != stage:
                for tab in self.tabs.online:
                    self._retire(tab, name)
        self._offered = offered

    def _give_out(self) -> None:
        self._withdraw()
        for model, stage in self.shelf.stages():
            if not self.holders(stage) and not self._loading(stage):
                self._give(model, stage, self._takers(stage))
        for model, stage in sorted(self.shelf.stages(), key=lambda each: len(self.holders(each[1]))):
            holders = self.holders(stage)
            if holders and not self._loading(stage) and len(holders) < model.replicas:
                self._give(model, stage, [tab for tab in self._takers(stage) if not tab.stages])
        self._spread()

    def _loading(self, stage: Stage) -> bool:
        return any(tab.loading == stage.name for tab in self.tabs.online)

    def _spread(self) -> None:
        """Move a stage from a full tab to one that came later; the full one lets it go when the other has it."""
        models = {stage.name: (model, stage) for model, stage in self.shelf.stages()}
        held = {tab.tab_id: frozenset(tab.stages & models.keys()) for tab in self.tabs.online}
        for tab_id, name in surplus(held, {name: model.replicas for name, (model, _) in models.items()}):
            if (full := self.tabs.get(tab_id)) is not None:
                self._retire(full, name)
        if any(tab.loading for tab in self.tabs.online):
            return
        move = next_move(held, lambda name: [tab.tab_id for tab in self._takers(models[name][1])])
        if move is not None:
            tab = self.tabs.get(move[1])
            assert tab is not None
            self._give(*models[move[0]], [tab])

    def _retire(self, tab: Tab, name: str) -> None:
        if name in tab.stages:
            log.info("stage moved away", tab=tab.tab_id, stage=name)
            tab.stages.discard(name)
            self.comparisons.forget(tab, name)
            self._retired.add((tab.tab_id, name))

    def _drop_retired(self) -> None:
        for tab_id, name in sorted(self._retired):
            tab = self.tabs.get(tab_id)
            if tab is None or tab.session is None or name in tab.stages or tab.loading == name:
                self._retired.discard((tab_id, name))
            elif not self._used[tab_id, name]:
                self._retired.discard((tab_id, name))
                self._spawn(self._drop(tab, name))

    async def _drop(self, tab: Tab, name: str) -> None:
        await self.desk.drop(tab, [name], None)
        await self.tabs.tell(tab, "standing", f"holds {', '.join(sorted(tab.stages)) or 'no stage'}")

    def _takers(self, stage: Stage) -> list[Tab]:
        """The tabs that could load a stage now, in the node router's order."""
        now, now_s = monotonic(), time.time()
        able = {
            tab.tab_id: tab
            for tab in self.tabs.online
            if stage.name not in tab.stages
            and tab.loading is None
            and tab.ops_s is not None
            and tab.liveness(now) in (Liveness.ONLINE, Liveness.BUSY)
            and not self.comparisons.suspended(tab, stage.name)
            and (tab.memory_mib is None or self._held_mib(tab) + stage.need_mib <= tab.memory_mib)
        }
        if not able:
            return []
        need = ModelNeed(MATMUL)  # what every tab has been measured at
        decision = decide_node(NodeRequest(), need, [tab.state(now, now_s) for tab in able.values()])
        return [able[score.node_id] for score in decision.ranked]

    def _held_mib(self, tab: Tab) -> int:
        return sum(
            stage.need_mib
            for _, stage in self.shelf.stages()
            if stage.name in tab.stages or (tab.tab_id, stage.name) in self._retired
        )

    def _give(self, model: BrowserModel, stage: Stage, takers: Sequence[Tab]) -> None:
        """To the one that holds least, the first among equals."""
        if takers:
            tab = min(takers, key=lambda each: len(each.stages))
            tab.loading = stage.name
            self._spawn(self._load(tab, model, stage))

    async def _load(self, tab: Tab, model: BrowserModel, stage: Stage) -> None:
        session = tab.session
        try:
            await self.tabs.tell(tab, "loading", f"loads {stage.name}")
            cached = await self.desk.load(tab, model, stage)
            if tab.session is not session:
                return
            log.info("stage loaded", tab=tab.tab_id, stage=stage.name, cached_bytes=cached)
            if self._offered.get(stage.name) != stage:  # meanwhile
                await self.desk.drop(tab, [stage.name], None)
                return
            others = [each for each in self.holders(stage) if each is not tab]
            if others and not await self.comparisons.passes(model, stage, others[0], tab):
                return
            if tab.session is session:
                tab.stages.add(stage.name)
                self.tabs.capacity()
        except WorkFault as fault:
            log.warning("stage not loaded", tab=tab.tab_id, stage=stage.name, cause=fault.cause, reason=str(fault))
            self.comparisons.suspend(tab, stage.name, RETRY_S)
        finally:
            if tab.session is session:
                tab.loading = None
                await self.tabs.tell(tab, "standing", f"holds {', '.join(sorted(tab.stages)) or 'no stage'}")

    def look_again(self, tab: Tab, question: Question, known: Numbers, story: dict[str, Any]) -> bool:
        """Let another holder make the same of a running answer's activations, beside it; `False` when there is none."""
        others = self.comparisons.holders_of(question.stages, (tab,))
        if not others:
            return False
        self._spawn(self.comparisons.look_again(tab, others[0], question, known, story))
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End what loads and what is compared."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
