"""What one coordinator tells the others of the nodes that are linked to it: what changed, or all of it, in numbered messages.

Only what goes into a message is decided here; when one leaves, and how, is the replica's.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from brain_coord.cluster.facts import facts_of
from brain_coord.cluster.view import PROTOCOL, SharedView
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry

FLUSH_S: Final = 0.05
"""How long changes are gathered before the others are told."""

FACTS_S: Final = 0.25
"""How often all that is known of one node is told at most; its load is told with every flush."""

NODES_AT_ONCE: Final = 100
"""Nodes of one message."""

NEWS_PER_S: Final = 1000
"""Nodes of which more than their load is told in a second, by all coordinators together: each has to take in all of it.

Faster than they can, Redis hangs up on them, and beats come too late behind the rest: all would take each other for dead.
"""


class Announcer:
    """Owned by the event loop's thread.

    Args:
        view: what all say; sessions here are claimed in it.
        registry: of the nodes.
        given: the jobs on each node here that came from other coordinators, by their names.
        name: of this coordinator.
        run_id: tells this process from an earlier one under the name.
    """

    def __init__(
        self, view: SharedView, registry: Registry, given: Mapping[str, Mapping[str, int]], name: str, run_id: str
    ) -> None:
        self.wake = asyncio.Event()
        """Set while there is something to tell."""
        self._view = view
        self._registry = registry
        self._given = given
        self._name = name
        self._run_id = run_id
        self._marked: set[Node] = set(registry.nodes.values())
        self._sessions: dict[str, str] = {}
        """Ids of the sessions here for which an epoch was drawn, by node id."""
        self._told: dict[str, tuple[float, dict[str, Any]]] = {}
        """What was told last of a node here, and when."""
        self._loads: dict[str, tuple[str, int, dict[str, int]]] = {}
        self._gone: list[str] = []
        """Nodes whose session here ended, of which the others were not told yet."""
        self._seq = 0
        self._asks: set[str] = set()
        self._rest: list[Node] | None = None
        """Nodes that are still to be told of, where all of it is told, beginning at the end; `None` while it is not."""
        self._first = False

    def mark(self, node: Node) -> None:
        """A node may have changed."""
        self._marked.add(node)
        self.wake.set()

    def ask(self, replica: str) -> None:
        """Messages of another coordinator were missed: ask it for all of it."""
        self._asks.add(replica)
        self.wake.set()

    def tell_all(self) -> None:
        """Somebody may have missed some of ours: tell all of it, a piece with every flush, from the beginning."""
        self._rest, self._first = [], True
        self.wake.set()

    def beat(self, address: str, *, leaving: bool) -> dict[str, Any]:
        """We are there, and this was our last numbered message."""
        clocks = {"clock": monotonic(), "wall_s": time.time()}
        return self._message("beat", protocol=PROTOCOL, seq=self._seq, address=address, leaving=leaving, **clocks)

    def decided(self, node_id: str) -> dict[str, Any]:
        """An operator decided something about a node here: the others read it from the store."""
        return self._message("decided", node=node_id)

    def claim_marked(self, now: float) -> None:
        """Claim the sessions that just began here: they must not lose against an older one elsewhere."""
        self._claim_all(self._marked, now)

    def gathered(self, now: float) -> list[dict[str, Any]]:
        """What has changed, and the next piece of all of it, as messages; numbered here, so that a lost one leaves a gap."""
        self.wake.clear()
        marked, self._marked = self._marked, set()
        self._claim_all(marked, now)
        gone = [node_id for node_id in self._gone if node_id not in self._view.own]  # others are here again
        self._gone = []
        room = max(1, round(NEWS_PER_S * FLUSH_S / len(self._view.present())))
        messages = [] if self._rest is None else [self._piece(self._rest, room, now)]
        held = [node for node in marked if node.node_id in self._view.own]
        known = self._news(held, now, 0 if messages else room)
        if self._marked or self._rest is not None:
            self.wake.set()
        for start in range(0, max(len(held), bool(gone)), NODES_AT_ONCE):
            some = held[start : start + NODES_AT_ONCE]
            facts = [(node.node_id, self._view.own[node.node_id], told) for node in some if (told := known.get(node))]
            load = [changed for node in some if (changed := self._load(node)) is not None]
            if facts or load or gone:
                messages.append(self._nodes(facts=facts, load=load, gone=gone))
            gone = []
        return [*messages, *self._asked()]

    def _asked(self) -> list[dict[str, Any]]:
        asked, self._asks = sorted(self._asks), set()
        return [self._message("ask", of=asked)] if asked else []

    def _news(self, nodes: Sequence[Node], now: float, room: int) -> dict[Node, dict[str, Any] | None]:
        """All that is known of those nodes whose turn it is, `None` where it was told before; the others stay marked.

        Nodes that just came are told at once, the others in turn: a median that moved a little can wait, unlike a load.
        """
        news: dict[Node, dict[str, Any] | None] = {}
        for node in nodes:
            before = self._told.get(node.node_id)
            if before is not None:
                if now - before[0] < FACTS_S or not room:
                    self._marked.add(node)
                    continue
                room -= 1
            known = facts_of(node)
            news[node] = None if before is not None and before[1] == known else known
            self._told[node.node_id] = (now, known)
        return news

    def _claim_all(self, nodes: Iterable[Node], now: float) -> None:
        """Draw epochs for new sessions, and let those go that ended."""
        for node in nodes:
            node_id, session = node.node_id, node.session
            if session is None:
                if self._sessions.pop(node_id, None) is not None:
                    self._view.release(node_id)
                    self._told.pop(node_id, None)
                    self._loads.pop(node_id, None)
                    self._gone.append(node_id)
            elif self._sessions.get(node_id) != session.session_id:
                if self._view.holder(node_id) is not None:
                    node.guard.superseded(now)
                self._sessions[node_id] = session.session_id
                self._told.pop(node_id, None)
                self._loads.pop(node_id, None)
                self._view.claim(node_id, time.time_ns() // 1_000_000)

    def _piece(self, rest: list[Node], room: int, now: float) -> dict[str, Any]:
        """So many nodes more of all of it. Others may have come or gone since its beginning, and were told of with that."""
        first, self._first = self._first, False
        if first:
            rest += [node for node_id in self._view.own if (node := self._registry.get(node_id)) is not None]
        some = [rest.pop() for _ in range(min(room, len(rest)))]
        facts, load = [], []
        for node in some:
            if (epoch := self._view.own.get(node.node_id)) is None:
                continue
            known = facts_of(node)
            self._told[node.node_id] = (now, known)
            facts.append((node.node_id, epoch, known))
            self._loads.pop(node.node_id, None)
            load.append(self._load(node))
        if not rest:
            self._rest = None
        return self._nodes(facts=facts, load=load, first=first, last=not rest)

    def _load(self, node: Node) -> tuple[str, int, dict[str, int]] | None:
        """A node's jobs, if they are others than were told last."""
        load = (node.node_id, node.active, dict(self._given.get(node.node_id, {})))
        if self._loads.get(node.node_id) == load:
            return None
        self._loads[node.node_id] = load
        return load

    def _nodes(self, **members: Any) -> dict[str, Any]:
        self._seq += 1
        return self._message("nodes", seq=self._seq, **members)

    def _message(self, kind: str, **members: Any) -> dict[str, Any]:
        return {"type": kind, "from": self._name, "run": self._run_id, **members}
