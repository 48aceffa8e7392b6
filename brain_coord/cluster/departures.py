"""Ends the links of nodes that are to link again elsewhere: when this coordinator holds too many of them, and when it stops."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import structlog

from brain_coord.cluster.spread import Linked, Spread
from brain_coord.cluster.view import SharedView
from brain_coord.fleet.node import Session
from brain_coord.fleet.registry import Registry
from brain_coord.link.orders import GOING_AWAY
from brain_node.contract.limits import LINK_AGAIN

log = structlog.get_logger("brain.cluster")

IDLE_S: Final = 0.05
"""How often it is looked for nodes that have nothing to do any more, while the coordinator stops."""


class Departures:
    """Owned by the event loop's thread.

    Args:
        view: which coordinators there are.
        registry: of the nodes; those linked elsewhere are in it too.
    """

    def __init__(self, view: SharedView, registry: Registry) -> None:
        self._view = view
        self._registry = registry
        self.moved = 0
        """Nodes that were asked to link again elsewhere."""
        self._spread = Spread()

    def held(self) -> Counter[str]:
        """How many nodes each coordinator holds."""
        return Counter(
            self._view.name if node.elsewhere is None else node.elsewhere.replica
            for node in self._registry.nodes.values()
            if node.connected
        )

    async def spread(self, now: float) -> None:
        """Ask some nodes that rest to link again elsewhere, if we hold clearly more than our share. One round."""
        held, in_vain = self.held(), self._spread.in_vain
        counts = {name: held[name] for name in self._view.present()}
        here = {
            node.node_id: (node, session)
            for node in self._registry.nodes.values()
            if (session := node.session) is not None
        }
        linked = [
            Linked(node_id, session.joined_at, node.state == "ONLINE") for node_id, (node, session) in here.items()
        ]
        asked = [here[node_id][1] for node_id in self._spread.due(self._view.name, counts, linked, now)]
        if asked:
            self.moved += len(asked)
            log.info("nodes asked to link again elsewhere", nodes=len(asked), held=counts)
            await _end(asked, LINK_AGAIN, "other coordinators hold fewer nodes")
        elif self._spread.in_vain and not in_vain:
            log.info(
                "nodes that were asked to link elsewhere come back: the load balancer leads them here", held=counts
            )

    async def let_go(self) -> None:
        """End the link of each node as soon as it has nothing to do, so that it serves elsewhere meanwhile; runs for ever."""
        while True:
            idle = [
                session
                for node in self._registry.nodes.values()
                if (session := node.session) is not None and not session.closing and not node.active
            ]
            await _end(idle, GOING_AWAY, "the coordinator is shutting down")
            await asyncio.sleep(IDLE_S)


async def _end(sessions: Sequence[Session], code: int, reason: str) -> None:
    """End the links of nodes that have nothing to do."""
    for session in sessions:
        session.closing = True  # before anything is awaited, or a job could still be given to it
    await asyncio.gather(*(session.link.close(code, reason) for session in sessions))
