"""The join challenge: a product that nobody could know before, timed here and checked in full, before a tab gets work."""

import asyncio
import secrets
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import structlog

from brain_coord.browser.blocks import Block
from brain_coord.browser.checker import Seeded
from brain_coord.browser.tab import Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.unit import Product, UnitRunner
from brain_coord.browser.work import WorkFault

log = structlog.get_logger("brain.browser")

SHAPES: Final = ((64, 1024, 64), (128, 2048, 128), (256, 8192, 256), (256, 32768, 256))
"""Rows, inner and columns. The first pays for compiling and counts for nothing; a larger one follows while the last
took less than `LONG_ENOUGH_S`, so that what is timed is the card and not the way to it."""

LONG_ENOUGH_S: Final = 0.1
TIMEOUT_S: Final = 60.0
RETRY_S: Final = 30.0


@dataclass(slots=True)
class ChallengeKeeper:
    """Challenges every tab that joins, and again those that were set aside when their time is over."""

    tabs: Tabs
    runner: UnitRunner
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def check(self, tab: Tab) -> None:
        """The tab joined."""
        if (running := self._tasks.pop(tab.tab_id, None)) is not None:
            running.cancel()
        task = asyncio.create_task(self._keep(tab))
        self._tasks[tab.tab_id] = task
        task.add_done_callback(lambda done: self._done(tab, done))

    def _done(self, tab: Tab, task: asyncio.Task[None]) -> None:
        if self._tasks.get(tab.tab_id) is task:
            del self._tasks[tab.tab_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("challenge failed", tab=tab.tab_id, error=str(error))

    async def _keep(self, tab: Tab) -> None:
        session = tab.session
        while tab.session is session and session is not None:
            wait_s = tab.strikes.until - monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            elif tab.ops_s is None and not tab.draining:
                try:
                    await self._challenge(tab)
                except WorkFault as fault:
                    if tab.session is session:
                        await self._failed(tab, fault)
            else:
                await asyncio.sleep(1.0)

    async def _failed(self, tab: Tab, fault: WorkFault) -> None:
        log.warning("challenge not passed", tab=tab.tab_id, cause=fault.cause, reason=str(fault))
        if fault.cause in ("wrong_result", "too_fast"):
            await self.tabs.caught(tab, str(fault))
        else:
            await self.tabs.tell(tab, "challenge", f"the join challenge was not passed: {fault}")
            await asyncio.sleep(RETRY_S)

    async def _challenge(self, tab: Tab) -> None:
        best = 0.0
        for number, shape in enumerate(SHAPES):
            operations, elapsed_s = await self._one(tab, *shape)
            if number and self.tabs.lag.stalled_s(monotonic() - elapsed_s, monotonic()) == 0:
                best = max(best, operations / elapsed_s)
            if number and best and elapsed_s >= LONG_ENOUGH_S:
                break
        if not best:
            raise WorkFault("stalled", "the coordinator itself was late", blame=False)
        self.tabs.measured(tab, best)
        log.info("tab measured", tab=tab.tab_id, ops_s=round(best))
        await self.tabs.tell(tab, "measured", "the join challenge was passed; this tab can get work")

    async def _one(self, tab: Tab, rows: int, inner: int, columns: int) -> tuple[int, float]:
        product = Product(Seeded(secrets.randbits(64), rows, inner, columns), rows, inner, columns)
        block = Block(0, rows, 0, columns)
        self.tabs.reserve(tab)
        _, elapsed_s = await self.runner.run(tab, product, block, timeout_s=TIMEOUT_S, known_ops_s=None)
        return block.operations(inner), elapsed_s

    async def stop(self) -> None:
        """End every run."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
