"""The store's part for what is remembered of nodes between their sessions."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from brain_coord.store import nodes
from brain_coord.store.core import StoreCore
from brain_coord.store.records import Benchmark, NodeRecord, Outcome, Uptime

OUTCOMES_S: Final = 0.2
"""How long outcomes are gathered before they are written."""


class NodeStore(StoreCore):
    """Nodes, the operator's decisions about them, benchmarks, outcomes and uptime."""

    _outcomes: "_Outcomes | None" = None

    async def upsert_node(self, seen: NodeRecord) -> NodeRecord:
        """Remember a node that joined; its first time and the operator's decisions stay. Returns it as it is now."""
        return await self.write(partial(nodes.upsert_node, seen=seen))

    async def touch_nodes(self, last_seen_s: dict[str, float]) -> None:
        """Set when nodes were last seen, many at once."""
        await self.write(partial(nodes.touch_nodes, last_seen_s=last_seen_s))

    async def get_node(self, node_id: str) -> NodeRecord | None:
        """One node."""
        return await self.read(partial(nodes.get_node, node_id=node_id))

    async def list_nodes(self) -> list[NodeRecord]:
        """All nodes by ascending id."""
        return await self.read(nodes.list_nodes)

    async def set_ban(self, node_id: str, reason: str | None) -> bool:
        """Ban a node for a reason, or lift its ban with `None`; `False` for an unknown node."""
        return await self.write(partial(nodes.set_ban, node_id=node_id, reason=reason))

    async def set_trust(self, node_id: str, trusted: bool) -> bool:
        """Trust a node, or stop; `False` for an unknown node."""
        return await self.write(partial(nodes.set_trust, node_id=node_id, trusted=trusted))

    async def set_drain(self, node_id: str, draining: bool) -> bool:
        """Take a node out of service, or put it back; `False` for an unknown node."""
        return await self.write(partial(nodes.set_drain, node_id=node_id, draining=draining))

    async def set_slots_borne(self, node_id: str, slots: int | None) -> bool:
        """How many jobs at once a node was seen to bear; `False` for an unknown node."""
        return await self.write(partial(nodes.set_slots_borne, node_id=node_id, slots=slots))

    async def save_benchmark(self, benchmark: Benchmark) -> None:
        """Keep the latest benchmark of a model on a node."""
        await self.write(partial(nodes.save_benchmark, benchmark=benchmark))

    async def load_benchmarks(self, node_id: str | None = None) -> list[Benchmark]:
        """The benchmarks of one node, or of all."""
        return await self.read(partial(nodes.load_benchmarks, node_id=node_id))

    def add_outcome(self, outcome: Outcome) -> "asyncio.Future[None]":
        """Record how work on a node ended, within a fraction of a second; need not be awaited.

        One at a time they would put a commit of their own before each receipt's. One that is lost is only missing from
        the score.
        """
        if self._outcomes is None:
            self._outcomes = _Outcomes(self._loop.create_future())
            self._outcomes.written.add_done_callback(_seen)
            self._loop.call_later(OUTCOMES_S, self.flush_outcomes)
        self._outcomes.waiting.append(outcome)
        return self._outcomes.written

    def flush_outcomes(self) -> None:
        """Hand the outcomes that wait to the writer."""
        outcomes, self._outcomes = self._outcomes, None
        if outcomes is not None:
            write = self.write(partial(nodes.add_outcomes, outcomes=outcomes.waiting))
            write.add_done_callback(partial(_pass_on, outcomes.written))

    async def close(self) -> None:
        """Make every queued write durable, then close; what cannot be written stays in the spool for the next start."""
        self.flush_outcomes()
        await super().close()

    async def load_outcomes(self, node_id: str, since_s: float, limit: int = 200) -> list[Outcome]:
        """The latest outcomes of a node since a time, oldest first."""
        return await self.read(partial(nodes.load_outcomes, node_id=node_id, since_s=since_s, limit=limit))

    async def load_outcomes_of(self, node_ids: Sequence[str], since_s: float) -> dict[str, list[Outcome]]:
        """The outcomes of some hundreds of nodes since a time, each node's oldest first."""
        return await self.read(partial(nodes.load_outcomes_of, node_ids=node_ids, since_s=since_s))

    async def add_uptime(self, days: list[Uptime]) -> None:
        """Add seconds of connection and observation to days of nodes."""
        await self.write(partial(nodes.add_uptime, days=days))

    async def load_uptime(self, since_day: int, node_id: str | None = None) -> list[Uptime]:
        """Connection time by day since a day, of one node or of all."""
        return await self.read(partial(nodes.load_uptime, since_day=since_day, node_id=node_id))


@dataclass(slots=True)
class _Outcomes:
    """Outcomes that will be written together, and the moment at which they are."""

    written: "asyncio.Future[None]"
    waiting: list[Outcome] = field(default_factory=list)


def _pass_on(to: "asyncio.Future[None]", done: "asyncio.Future[None]") -> None:
    if to.done():
        return
    if done.cancelled():
        to.cancel()
    elif (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(None)


def _seen(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()
