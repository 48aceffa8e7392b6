"""The site over one coordinator: what it remembers, the live frame, and the parts that the pages read."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import nsmallest
from typing import Any, Final, Protocol

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.entry import Gateway
from brain_coord.gateway.routes.context import ReceiptShelf
from brain_coord.web.live import Item, Lists, LiveHub
from brain_coord.web.view.history import PERIOD_S, History
from brain_coord.web.view.recent import DecisionRow, RecentRequests, decision_row
from brain_coord.web.view.rows import (
    ROWS_SHOWN,
    Census,
    ClassRow,
    ModelRow,
    NodeRow,
    Summary,
    class_rows,
    model_rows,
    node_row,
    offers_of,
    place_of,
    summary_of,
)

DECISIONS_SHOWN: Final = 15

SLICE: Final = 200
"""Nodes that are counted in one go; about two milliseconds."""


@dataclass(frozen=True, slots=True)
class Records:
    """Everything /network shows at one moment."""

    summary: Summary
    nodes: tuple[NodeRow, ...]
    models: tuple[ModelRow, ...]
    classes: tuple[ClassRow, ...]
    decisions: tuple[DecisionRow, ...]


class ShownTabs(Protocol):
    """The browser tabs, as the pages and the operator see them."""

    def rows(self) -> Sequence[Any]:
        """The list's rows."""

    async def page(self, tab_id: str) -> Any:
        """One tab's page, `None` for one that is not known."""

    async def ban(self, tab_id: str, reason: str) -> bool:
        """Ban a tab; `False` for one that is not known."""

    async def unban(self, tab_id: str) -> bool:
        """Lift a ban; `False` for a tab that is not known."""


class NoTabs:
    """Where there are none."""

    def rows(self) -> Sequence[Any]:
        """None."""
        return ()

    async def page(self, tab_id: str) -> Any:
        """None has this id."""
        del tab_id

    async def ban(self, tab_id: str, reason: str) -> bool:
        """None has this id."""
        del tab_id, reason
        return False

    async def unban(self, tab_id: str) -> bool:
        """None has this id."""
        del tab_id
        return False


def key_of(model: str) -> str:
    """An element id for a model's name, which may hold any sign."""
    return hashlib.sha256(model.encode()).hexdigest()[:12]


@dataclass(slots=True)
class Site:
    """Everything the pages are made from.

    Attributes:
        explain: a node's reliability score (`score`, `terms`); `None` for a node without one.
        skips: why requests passed a node by within the last hour, most frequent first.
        base: path prefix that a proxy in front keeps.
    """

    gateway: Gateway
    registry: Registry
    receipts: ReceiptShelf
    explain: Callable[[Node], Mapping[str, Any] | None]
    skips: Callable[[Node], Mapping[str, int]]
    base: str = ""
    tabs: ShownTabs = field(default_factory=NoTabs)
    """The browser tabs; set by whoever has them."""
    hub: LiveHub = field(init=False)
    _recent: RecentRequests = field(default_factory=RecentRequests)
    _history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.hub = LiveHub(self.lists, self.base)
        self.gateway.finished.watchers += [self._recent.add, self._history.finished]

    @property
    def recent(self) -> RecentRequests:
        """The latest requests, with those that ended just now."""
        self.gateway.finished.tell()
        return self._recent

    @property
    def history(self) -> History:
        """The last day, with the requests that ended just now."""
        self.gateway.finished.tell()
        return self._history

    async def census(self) -> Census:
        """Count the fleet, a slice at a time: requests must not wait while thousands of nodes are counted."""
        census = Census()
        for number, node in enumerate(list(self.registry.nodes.values()), 1):
            census.add(node)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return census

    async def records(self) -> Records:
        """What /network shows, as it is now."""
        census = await self.census()
        decider = self.gateway.decider
        offers = offers_of(decider.backends)
        health = self.receipts.health()
        summary = summary_of(
            census,
            models=len(offers),
            running=len(self.gateway.running) - len(self.gateway.waiting),
            waiting=len(self.gateway.waiting),
            receipts={"ok": "recorded", "spooling": "kept on disk", "refusing": "not recorded"}[health["state"]],
        )
        return Records(
            summary=summary,
            nodes=tuple(node_row(node, self._passed_by(node)) for node in census.first()),
            models=model_rows(decider.catalog, census, offers),
            classes=class_rows(decider.backends, census, offers),
            decisions=tuple(decision_row(each) for each in self.recent.newest(DECISIONS_SHOWN)),
        )

    async def lists(self) -> Lists:
        """The lists of /network, each with the template of its items."""
        now = await self.records()
        tabs = nsmallest(ROWS_SHOWN, self.tabs.rows(), key=lambda row: place_of(row.state, row.tab_id))
        return {
            "summary": [Item("summary", "parts/summary.html", now.summary)],
            "nodes": [Item(f"node-{row.node_id}", "parts/node.html", row) for row in now.nodes],
            "tabs": [Item(f"tab-{row.tab_id}", "parts/tab.html", row) for row in tabs],
            "models": [Item(f"model-{key_of(row.model)}", "parts/model.html", row) for row in now.models],
            "classes": [Item(f"class-{row.resource_class}", "parts/class.html", row) for row in now.classes],
            "decisions": [Item(f"decision-{row.decision_id}", "parts/decision.html", row) for row in now.decisions],
        }

    async def figures(self) -> dict[str, Any]:
        """The same as JSON values."""
        now = await self.records()
        members = asdict(now)
        members["summary"] |= {"nodes": now.summary.nodes, "connected": now.summary.connected}
        return members

    def _passed_by(self, node: Node) -> str | None:
        """The reason for which most requests passed a node by lately."""
        return next(iter(self.skips(node)), None)

    async def run(self) -> None:
        """Keep the live frame and the history going; runs for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.hub.run())
            tasks.create_task(self._keep_history())

    async def _keep_history(self) -> None:
        while True:
            self.history.close_period(time.time(), self.states())
            await asyncio.sleep(PERIOD_S)

    def states(self) -> dict[str, int]:
        """How many nodes are in each state."""
        return dict(Counter(node.state for node in self.registry.nodes.values()))

    def close(self) -> None:
        """Let every viewer go."""
        self.hub.close()

    def values(self, here: str = "") -> dict[str, Any]:
        """What every page needs."""
        return {"base": self.base, "here": here}
