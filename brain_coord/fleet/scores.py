"""Keeps every node's score: outcomes as they come, uptime as it passes, both written down and read back at a start."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

import structlog

from brain_coord.fleet.health import Health
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.reliability import WINDOW_S
from brain_coord.fleet.standing import DAY_S, RECALLED, Standing
from brain_coord.fleet.uptime import PERIOD_S, UptimeMeter
from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import Outcome, Uptime

log = structlog.get_logger("brain.fleet")

FLUSH_S: Final = 300.0
"""How often uptime is written down; what a crash loses counts neither as connected nor as observed."""

RECALLED_AT_ONCE: Final = 500
WRITTEN_AT_ONCE: Final = 500

SLICE: Final = 200
"""Scores worked out in one go, so that a large fleet never holds up the loop."""


class Archive(Protocol):
    """Where outcomes and uptime outlive the process."""

    async def load_outcomes(self, node_id: str, since_s: float, limit: int = 200) -> list[Outcome]:
        """The latest outcomes since a time, oldest first."""

    async def load_uptime(self, since_day: int, node_id: str | None = None) -> list[Uptime]:
        """Connection time by day since a day."""

    async def load_outcomes_of(self, node_ids: Sequence[str], since_s: float) -> dict[str, list[Outcome]]:
        """The outcomes of some nodes since a time, each node's oldest first."""

    def add_outcome(self, outcome: Outcome) -> Awaitable[None]:
        """Write an outcome down; need not be awaited."""

    async def add_uptime(self, days: list[Uptime]) -> None:
        """Add seconds to days of nodes."""

    async def touch_nodes(self, last_seen_s: dict[str, float]) -> None:
        """When nodes were last seen."""


@dataclass(slots=True)
class ScoreKeeper:
    """Standings of all nodes. `node.reliability` always is the latest score."""

    archive: Archive
    registry: Registry
    standings: dict[str, Standing] = field(default_factory=dict)
    counts: Callable[[Node], bool] = lambda _: True
    """Whether this coordinator counts a node's uptime: in a cluster only one does."""
    _meter: UptimeMeter = field(default_factory=UptimeMeter)
    _flushed_at: float = field(default_factory=monotonic)

    async def recall(self, node: Node) -> None:
        """What is remembered of a node: its score, and whether it was fit for work."""
        if node.node_id in self.standings:
            return
        wall_s = time.time()
        outcomes = await self.archive.load_outcomes(node.node_id, wall_s - WINDOW_S, RECALLED)
        days = await self.archive.load_uptime(int((wall_s - WINDOW_S) // DAY_S), node.node_id)
        self._recalled(node, outcomes, days, wall_s)

    async def recall_all(self, nodes: Sequence[Node]) -> None:
        """The same for a whole fleet, some hundreds of nodes with each question to the store."""
        wall_s = time.time()
        days: dict[str, list[Uptime]] = {}
        for day in await self.archive.load_uptime(int((wall_s - WINDOW_S) // DAY_S)):
            days.setdefault(day.node_id, []).append(day)
        for start in range(0, len(nodes), RECALLED_AT_ONCE):
            some = nodes[start : start + RECALLED_AT_ONCE]
            outcomes = await self.archive.load_outcomes_of([node.node_id for node in some], wall_s - WINDOW_S)
            for node in some:
                self._recalled(node, outcomes[node.node_id][-RECALLED:], days.get(node.node_id, []), wall_s)

    def begins(self, node: Node) -> None:
        """A node that nobody has seen before: there is nothing to recall."""
        self._recalled(node, [], [], time.time())

    def _recalled(self, node: Node, outcomes: Sequence[Outcome], days: Sequence[Uptime], wall_s: float) -> None:
        now = monotonic()
        standing = self.standings[node.node_id] = Standing.of(outcomes, days)
        # The store's dates may be ahead of our clock; nothing that happened lies in the future.
        ages_s = [max(0.0, wall_s - each.at_s) for each in outcomes]
        happened = zip(ages_s, outcomes, strict=True)
        node.health = Health.recalled((now - age_s, each.kind, each.result) for age_s, each in happened)
        self._score(node, standing, wall_s)

    def event(self, node: Node, outcome: Outcome) -> None:
        """Something counts for or against a node; the score follows at once, the archive a moment later."""
        standing = self.standings.get(outcome.node_id)
        if standing is not None and standing.add(outcome):
            self._score(node, standing, outcome.at_s)
        self.archive.add_outcome(outcome)

    @staticmethod
    def _score(node: Node, standing: Standing, wall_s: float) -> None:
        score, done = standing.score(wall_s), len(standing.done)
        if node.reliability != score or node.done != done:
            node.reliability, node.done = score, done

    async def run(self) -> None:
        """Count uptime and let scores age; runs for ever."""
        while True:
            await self._tick()
            await asyncio.sleep(PERIOD_S)

    async def _tick(self) -> None:
        wall_s, now = time.time(), monotonic()
        nodes = [node for node in self.registry.nodes.values() if self.counts(node)]
        await self._recall_missing(nodes)
        for passed in self._meter.tick(((node.node_id, node.connected) for node in nodes), now, wall_s):
            if (standing := self.standings.get(passed.node_id)) is not None:
                standing.observed(passed.day, passed.connected_s, passed.observed_s)
        for start in range(0, len(nodes), SLICE):
            for node in nodes[start : start + SLICE]:
                if (standing := self.standings.get(node.node_id)) is not None:
                    self._score(node, standing, wall_s)
                self.registry.lessons.expire(node, now)
            await asyncio.sleep(0)
        if now - self._flushed_at >= FLUSH_S:
            await self.flush()

    async def _recall_missing(self, nodes: Sequence[Node]) -> None:
        """Nodes that came from another coordinator of the cluster while the store was away."""
        try:
            for node in nodes:
                if node.session is not None:
                    await self.recall(node)
        except StoreUnavailable:
            return  # until then they keep the score that they came with

    async def flush(self) -> None:
        """Write down the uptime since the last time. Without a store it is lost, which changes no share by itself."""
        self._flushed_at = monotonic()
        wall_s = time.time()
        seen = [node.node_id for node in self.registry.nodes.values() if node.session is not None]
        passed = self._meter.flush()
        try:
            # In pieces: receipts are written by the same hand, and none should wait for a whole fleet.
            for start in range(0, len(passed), WRITTEN_AT_ONCE):
                await self.archive.add_uptime(passed[start : start + WRITTEN_AT_ONCE])
            for start in range(0, len(seen), WRITTEN_AT_ONCE):
                await self.archive.touch_nodes(dict.fromkeys(seen[start : start + WRITTEN_AT_ONCE], wall_s))
        except StoreUnavailable as error:
            log.warning("uptime not written down", cause=str(error))

    def explanation(self, node: Node) -> dict[str, Any] | None:
        """The score of a node term by term, with every event it stands on; `None` for a node that has no standing."""
        standing = self.standings.get(node.node_id)
        return None if standing is None else explained(standing, time.time())

    async def remembered(self, node: Node) -> dict[str, Any]:
        """The same of a node whose standing another coordinator keeps, from what the store has of it."""
        wall_s = time.time()
        outcomes = await self.archive.load_outcomes(node.node_id, wall_s - WINDOW_S, RECALLED)
        days = await self.archive.load_uptime(int((wall_s - WINDOW_S) // DAY_S), node.node_id)
        return explained(Standing.of(outcomes, days), wall_s)


def explained(standing: Standing, wall_s: float) -> dict[str, Any]:
    """A score with its terms and its events, newest first."""
    explanation = standing.explain(wall_s)
    events = sorted((*standing.done, *standing.compared), key=lambda each: each.at_s, reverse=True)
    return {
        **explanation.to_dict(),
        "sentence": explanation.sentence(),
        "uptime_fraction": round(standing.uptime_fraction(wall_s), 6),
        "events": [
            {
                "at_s": round(each.at_s, 3),
                "kind": each.kind,
                "result": each.result,
                "model": each.model,
                "detail": each.detail,
            }
            for each in events
        ],
    }
