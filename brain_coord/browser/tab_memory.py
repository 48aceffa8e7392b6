"""What outlives a tab's session, and the coordinator's process: what it was caught at, its outcomes, the operator's word."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

import structlog

from brain_coord.browser.tab import LAST_WAY_BACK_S, Strikes, Tab, Verified
from brain_coord.browser.tabs import Tabs
from brain_coord.fleet.reliability import WINDOW_S
from brain_coord.fleet.standing import RECALLED, Standing
from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import Outcome, TabRecord

log = structlog.get_logger("brain.browser")

FLUSH_S: Final = 10.0
"""How often counters are written down; what a tab was caught at is written at once."""


class Archive(Protocol):
    """Where tabs are remembered."""

    async def get_tab(self, tab_id: str) -> TabRecord | None:
        """One tab."""

    async def save_tabs(self, seen: Sequence[TabRecord]) -> None:
        """Remember tabs as they are now."""

    async def ban_tab(self, tab_id: str, reason: str | None) -> None:
        """Ban a tab, or lift its ban with `None`."""

    async def banned_tabs(self) -> dict[str, str]:
        """Every banned tab, with the reason."""

    async def load_outcomes(self, node_id: str, since_s: float, limit: int = 200) -> list[Outcome]:
        """The latest outcomes since a time, oldest first."""

    def add_outcome(self, outcome: Outcome) -> Awaitable[None]:
        """Write an outcome down; need not be awaited."""


@dataclass(slots=True)
class TabMemory:
    """Recalls tabs when they join, and writes down what they do. Tabs that never did anything are not remembered."""

    archive: Archive
    tabs: Tabs
    _changed: set[Tab] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tabs.on_change.append(self._mark)
        self.tabs.on_outcome.append(self.archive.add_outcome)

    async def recall(self, tab_id: str) -> Tab:
        """A tab as it is remembered.

        Raises:
            StoreUnavailable: it is not known here, and the store is away.
        """
        known, wall_s = self.tabs.get(tab_id), time.time()
        try:
            record = await self.archive.get_tab(tab_id)
        except StoreUnavailable:
            if known is None:
                raise
            return known
        if known is not None:
            if record is not None:  # another coordinator on the same store may have seen more of it
                known.banned = record.banned_reason
                if record.strikes > known.strikes.count:
                    known.strikes = _strikes(record, wall_s)
            return known
        outcomes = await self.archive.load_outcomes(tab_id, wall_s - WINDOW_S, RECALLED)
        tab = self.tabs.known(tab_id)
        if tab.first_seen_s is not None:
            return tab  # it came twice at once
        tab.first_seen_s = wall_s
        tab.standing = Standing.of(outcomes, [])
        if record is not None:
            tab.first_seen_s, tab.banned = record.first_seen_s, record.banned_reason
            tab.strikes = _strikes(record, wall_s)
            tab.verified = Verified(record.units, int(record.operations), record.tokens, record.refused)
        return tab

    def _mark(self, tab: Tab, at_once: bool) -> None:
        self._changed.add(tab)
        if at_once:
            task = asyncio.create_task(self.flush())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def run(self) -> None:
        """Write down what changed; runs for ever."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()
            await self._take_bans()

    async def _take_bans(self) -> None:
        """What an operator said through another coordinator on the same store."""
        if not self.tabs.online:
            return
        try:
            banned = await self.archive.banned_tabs()
        except StoreUnavailable:
            return
        for tab in self.tabs:
            tab.banned = banned.get(tab.tab_id)
            if tab.banned is not None and tab.connected:
                await self.tabs.expel(tab, tab.banned)

    async def flush(self) -> None:
        """Write down what changed since the last time; without a store it waits for the next time."""
        changed, self._changed = self._changed, set()
        if not changed:
            return
        try:
            await self.archive.save_tabs([record_of(tab) for tab in changed])
        except StoreUnavailable as error:
            self._changed |= changed
            log.warning("tabs not written down", count=len(changed), cause=str(error))

    async def ban(self, tab_id: str, reason: str | None) -> None:
        """The operator bans a tab, here now or not, or lifts its ban: first written down, then carried out."""
        await self.archive.ban_tab(tab_id, reason)
        tab = self.tabs.get(tab_id)
        if tab is not None:
            tab.banned = reason
            if reason is not None:
                await self.tabs.expel(tab, reason)

    async def stop(self) -> None:
        """Write down what is left."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()


def _strikes(record: TabRecord, wall_s: float) -> Strikes:
    wait_s = min(LAST_WAY_BACK_S, record.aside_until_s - wall_s)  # another clock may have dated it
    return Strikes(record.strikes, record.strike_reason, monotonic() + wait_s)


def record_of(tab: Tab) -> TabRecord:
    """A tab as the store keeps it; the operator's word is written by itself."""
    wall_s, verified, strikes = time.time(), tab.verified, tab.strikes
    return TabRecord(
        tab_id=tab.tab_id,
        first_seen_s=wall_s if tab.first_seen_s is None else tab.first_seen_s,
        last_seen_s=wall_s,
        strikes=strikes.count,
        strike_reason=strikes.reason,
        aside_until_s=0.0 if not strikes.count else wall_s + strikes.until - monotonic(),
        units=verified.units,
        operations=float(verified.operations),
        tokens=verified.tokens,
        refused=verified.refused,
    )
