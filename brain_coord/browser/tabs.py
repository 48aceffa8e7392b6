"""All tabs of this coordinator: who is here, what each has of work, and how its work counted."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import structlog

from brain_coord.browser.tab import Tab
from brain_coord.fleet.liveness import is_silent
from brain_coord.fleet.node import Session
from brain_coord.link.orders import POLICY
from brain_coord.measure.lag import LoopLag
from brain_coord.routing.inputs import NodeState
from brain_coord.store.records import Outcome
from brain_node.contract.messages import Hello, Notice, Refused

log = structlog.get_logger("brain.browser")

REMEMBERED: Final = 4096
"""Tabs that left and are remembered, so that a caught one cannot return at once under its name."""


@dataclass(slots=True)
class Tabs:
    """The registry of tabs. Hooks are called when there is more to give work to, and when a tab joins or leaves."""

    heartbeat_s: float
    lag: LoopLag
    on_capacity: list[Callable[[], None]] = field(default_factory=list)
    on_join: list[Callable[[Tab], None]] = field(default_factory=list)
    on_leave: list[Callable[[Tab], None]] = field(default_factory=list)
    on_change: list[Callable[[Tab, bool], None]] = field(default_factory=list)
    """Hears that there is something to remember of a tab, and whether it has to be written down at once."""
    on_outcome: list[Callable[[Outcome], object]] = field(default_factory=list)
    caught_ever: int = 0
    """Answers that did not stand their check, also of tabs that are forgotten since."""
    _tabs: dict[str, Tab] = field(default_factory=dict)
    _tickets: dict[str, Tab] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Tab]:
        return iter(list(self._tabs.values()))

    @property
    def anybody(self) -> bool:
        """Whether any link is open; asked for every request."""
        return bool(self._tickets)

    @property
    def online(self) -> list[Tab]:
        """The tabs whose link is open, by id."""
        return sorted(self._tickets.values(), key=lambda tab: tab.tab_id)

    def get(self, tab_id: str) -> Tab | None:
        """A tab by its id."""
        return self._tabs.get(tab_id)

    def by_ticket(self, ticket: str) -> Tab | None:
        """Whose slot ticket this is."""
        return self._tickets.get(ticket)

    def known(self, tab_id: str) -> Tab:
        """The tab of an id, a new one at first."""
        tab = self._tabs.get(tab_id)
        if tab is None:
            self._forget_some()
            tab = self._tabs[tab_id] = Tab(tab_id)
        return tab

    def _forget_some(self) -> None:
        if len(self._tabs) >= REMEMBERED:
            now = monotonic()
            gone = [tab_id for tab_id, tab in self._tabs.items() if not tab.connected and not tab.strikes.holds(now)]
            for tab_id in gone[: REMEMBERED // 8]:
                del self._tabs[tab_id]

    def connect(self, tab: Tab, session: Session, hello: Hello) -> None:
        """A session begins; an older one of the same tab ends, and its jobs with it."""
        if tab.session is not None:
            self.disconnect(tab, tab.session, "superseded by a newer session of this tab")
        tab.session, tab.report, tab.offer = session, hello.report, hello.offer
        tab.draining, tab.ops_s = False, None
        tab.rtt.lost()
        self._tickets[session.ticket] = tab
        for told in self.on_join:
            told(tab)

    def disconnect(self, tab: Tab, session: Session, reason: str) -> None:
        """A session is over. What it had loaded is gone with it."""
        self._tickets.pop(session.ticket, None)
        session.closing = True
        session.slots.close(reason)
        if tab.session is session:
            tab.session, tab.ops_s, tab.loading = None, None, None
            tab.stages.clear()
            log.info("tab left", tab=tab.tab_id, reason=reason)
            for told in self.on_leave:
                told(tab)
            self.capacity()

    def capacity(self) -> None:
        """Somebody may have more to give."""
        for told in self.on_capacity:
            told()

    def reserve(self, tab: Tab) -> None:
        """A job goes to the tab."""
        tab.active += 1

    def release(self, tab: Tab) -> None:
        """Its job is over."""
        tab.active = max(0, tab.active - 1)
        self.capacity()

    def drains(self, tab: Tab, *, draining: bool) -> None:
        """The tab says that it takes no new work, or takes it again."""
        if tab.draining != draining:
            tab.draining = draining
            if not draining:
                self.capacity()

    def measured(self, tab: Tab, ops_s: float) -> None:
        """It passed a challenge."""
        tab.ops_s = ops_s
        self._changed(tab)
        self.capacity()

    def _changed(self, tab: Tab, *, at_once: bool = False) -> None:
        for told in self.on_change:
            told(tab, at_once)

    def outcome(self, tab: Tab, result: str, kind: str = "customer", detail: str | None = None) -> None:
        """How a job on it counts: `completed`, `failed` or `timed_out`."""
        outcome = Outcome(tab.tab_id, kind, result, time.time(), None, detail)
        tab.standing.add(outcome)
        for told in self.on_outcome:
            told(outcome)
        self._changed(tab)

    async def caught(self, tab: Tab, reason: str) -> None:
        """An answer did not stand its check: the tab is set aside, its owner told."""
        tab.verified.refused += 1
        self.caught_ever += 1
        tab.strikes.add(reason, monotonic())
        tab.ops_s = None
        tab.stages.clear()
        self.outcome(tab, "failed", "canary", reason)
        self._changed(tab, at_once=True)
        log.warning("tab caught", tab=tab.tab_id, reason=reason, strikes=tab.strikes.count)
        wait_s = tab.strikes.until - monotonic()
        await self.tell(tab, "caught", f"{reason}; this tab gets no work for {wait_s / 60:.0f} minutes")

    async def expel(self, tab: Tab, reason: str) -> None:
        """The operator does not want it: its page is told so and dials no more, and its link ends."""
        session = tab.session
        if session is not None:
            log.warning("tab expelled", tab=tab.tab_id, reason=reason)
            await session.link.send(Refused(code="banned", message=banned(reason), retry=False))
            self.disconnect(tab, session, "banned by the operator")
            await session.link.close(POLICY, "banned")

    async def tell(self, tab: Tab, code: str, message: str) -> None:
        """Show something on the tab's page, with what is known of it on our clock."""
        if tab.session is not None:
            view = tab.view(monotonic(), time.time())
            await tab.session.link.send(Notice(code=code, message=message, data=view))

    def silent(self) -> list[tuple[Tab, Session]]:
        """Links that were silent for too long, our own stalls given back."""
        now, found = monotonic(), []
        for tab in self.online:
            session = tab.session
            if session is None:
                continue
            stalled_s = self.lag.stalled_s(session.last_heard, now)
            if is_silent(session.last_heard, now, self.heartbeat_s, stalled_s):
                found.append((tab, session))
        return found

    def states(self) -> list[NodeState]:
        """Every connected tab as the node router sees it."""
        now, now_s = monotonic(), time.time()
        return [tab.state(now, now_s) for tab in self.online]


def banned(reason: str) -> str:
    """The sentence for the tab's owner."""
    return f"the operator of this coordinator has banned this tab: {reason}"
