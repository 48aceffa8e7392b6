"""The nodes that other coordinators hold, as they stand in this one's registry: kept to what the shared view says of them."""

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

import structlog

from brain_coord.cluster.facts import new_node, take_in
from brain_coord.cluster.view import SharedView
from brain_coord.fleet.node import Elsewhere
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.link.orders import POLICY

log = structlog.get_logger("brain.cluster")


class Mirror:
    """Owned by the event loop's thread.

    Args:
        view: who holds which node, and what is known of it.
        registry: of the nodes; those that others hold are in it too.
        scores: the standing of a node is kept by its holder alone.
        spawn: runs something beside everything else.
    """

    def __init__(
        self,
        view: SharedView,
        registry: Registry,
        scores: ScoreKeeper,
        spawn: Callable[[Coroutine[Any, Any, object]], None],
    ) -> None:
        self._view = view
        self._registry = registry
        self._scores = scores
        self._spawn = spawn
        self._links: WeakValueDictionary[tuple[str, int], Elsewhere] = WeakValueDictionary()
        """Links elsewhere that somebody still has: jobs go on while their replica is out of sight, and keep their slots."""

    def take(self, node_id: str) -> None:
        """Make a node what its holder says of it."""
        claim, node = self._view.holder(node_id), self._registry.get(node_id)
        if claim is None:
            if node is not None and node.elsewhere is not None:
                self._registry.held_elsewhere(node, None, "its coordinator is gone, or its link closed")
            elif node is not None and node.session is None:
                node.left_at = monotonic()  # until now it was linked to one that takes none of our jobs
            return
        if node is None:
            node = self._registry.add(new_node(node_id, claim.facts))
        if (session := node.session) is not None:
            log.info("superseded", node=node_id, replica=claim.replica)
            self._registry.disconnect(node, session, "superseded by a newer session at another coordinator")
            self._spawn(session.link.close(POLICY, "superseded by a newer session of this node"))
        self._registry.belongs(node, operator=claim.facts["operator"])
        self._scores.standings.pop(node_id, None)  # its holder keeps it; here it would grow stale
        link = (claim.replica, claim.epoch)
        where = self._links.setdefault(link, Elsewhere(*link))
        where.others = claim.others(self._view.name)
        known = node
        self._registry.held_elsewhere(node, where, f"linked at {claim.replica}", lambda: take_in(known, claim.facts))

    def loaded(self, node_id: str) -> None:
        """Take in how many jobs a node has, as its holder says."""
        claim, node = self._view.holder(node_id), self._registry.get(node_id)
        where = None if node is None else node.elsewhere
        if claim is None or node is None or where is None or where.epoch != claim.epoch:
            return
        self._registry.runs_elsewhere(node, where, others=claim.others(self._view.name), own=where.own)
