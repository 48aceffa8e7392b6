"""Everything of the browser network over one coordinator, wired once: tabs, gate, challenges, compute jobs."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from fastapi import APIRouter

from brain_coord.browser.challenge import ChallengeKeeper
from brain_coord.browser.checker import Checker
from brain_coord.browser.compute_api import ComputeApi
from brain_coord.browser.gate import BrowserGate
from brain_coord.browser.holders import StageKeeper
from brain_coord.browser.jobs import Dispatcher, JobBook
from brain_coord.browser.offer import BrowserOffer
from brain_coord.browser.pieces_api import pieces_router
from brain_coord.browser.plausible import SpeedRules
from brain_coord.browser.shelf import Shelf
from brain_coord.browser.stage_work import StageDesk
from brain_coord.browser.tab_memory import Archive, TabMemory
from brain_coord.browser.tab_row import shown
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.tabs_api import tabs_router
from brain_coord.browser.unit import UnitRunner
from brain_coord.classes.browser import BrowserClass
from brain_coord.fleet.addresses import AddressBook
from brain_coord.gateway.entry import Gateway
from brain_coord.measure.lag import LoopLag
from brain_coord.observe.tab_gauges import TabFigures
from brain_coord.web.lend import lend_router


@dataclass(slots=True)
class BrowserNetwork:
    """The rooms of the browser network. Made inside the event loop that will use them."""

    heartbeat_s: float
    lag: LoopLag
    coordinator_key: str
    addresses: AddressBook
    browser_class: BrowserClass
    data_dir: Path
    archive: Archive
    base: str = ""
    rules: SpeedRules = field(default_factory=SpeedRules)
    tabs: Tabs = field(init=False)
    memory: TabMemory = field(init=False)
    gate: BrowserGate = field(init=False)
    checker: Checker = field(init=False)
    challenges: ChallengeKeeper = field(init=False)
    book: JobBook = field(init=False)
    keeper: StageKeeper = field(init=False)

    def __post_init__(self) -> None:
        self.tabs = Tabs(self.heartbeat_s, self.lag)
        self.memory = TabMemory(self.archive, self.tabs)
        self.gate = BrowserGate(self.tabs, self.memory, self.coordinator_key, self.addresses)
        self.checker = Checker()
        runner = UnitRunner(self.tabs, self.checker, self.rules)
        self.challenges = ChallengeKeeper(self.tabs, runner)
        self.book = JobBook(Dispatcher(self.tabs, runner))
        self.tabs.on_join.append(self.challenges.check)
        self.keeper = StageKeeper(self.tabs, Shelf(self.data_dir), StageDesk(self.tabs))
        self.tabs.on_leave.append(self.keeper.left)
        self.browser_class.work = BrowserOffer(self.book.dispatcher, self.keeper, self.browser_class.samples)

    def router(self, gateway: Gateway) -> APIRouter:
        """The HTTP routes."""
        router = APIRouter()
        router.include_router(ComputeApi(gateway, self.book, self.browser_class.compute).router())
        router.include_router(tabs_router(self.tabs))
        router.include_router(pieces_router(self.tabs, self.keeper.shelf))
        router.include_router(lend_router(self.base))
        return router

    def figures(self) -> TabFigures:
        """How it stands now, for monitoring."""
        now, online = monotonic(), self.tabs.online
        stages = {stage.name for _, stage in self.keeper.shelf.stages()}
        return TabFigures(
            states=Counter(str(tab.liveness(now)) for tab in shown(self.tabs, now)),
            slots_offered=sum(tab.slots for tab in online),
            slots_active=sum(tab.active for tab in online),
            unmeasured=sum(tab.ops_s is None for tab in online),
            caught=self.tabs.caught_ever,
            stages_offered=len(stages),
            stages_held=len(stages & {name for tab in online for name in tab.stages}),
            stages_loading=sum(tab.loading is not None for tab in online),
            jobs_running=self.book.running,
        )

    async def run(self) -> None:
        """Everything that goes on by itself; runs for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.gate.watch())
            tasks.create_task(self.keeper.run())
            tasks.create_task(self.memory.run())

    async def drain(self, limit_s: float) -> None:
        """Let products end within the limit; tabs stay, as chats may still run on them."""
        await self.book.drain(limit_s)

    async def close_all(self) -> None:
        """Let every tab go."""
        await self.gate.close_all()

    async def stop(self) -> None:
        """End everything that still runs."""
        await self.book.drain(0.0)
        await self.challenges.stop()
        await self.keeper.stop()
        await self.memory.stop()
        self.checker.close()
