"""When a coordinator holds clearly more than its share of the nodes, and which of them it asks to link again. Pure.

Nodes stay where they are when a coordinator comes back, and a load balancer leads new links only. So whoever holds too
many lets a few idle ones go with every round, until it holds no more than its share; where they go is the balancer's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

ROUND_S: Final = 20.0
"""How often it is looked at."""

HANDFUL: Final = 5
"""Nodes above its share that a coordinator has at least, before it asks any."""

MORE: Final = 0.2
"""It asks with more than so much of its share above that, or while another holds less than `LESS` of its own: among many
coordinators an empty one leaves only a little more to each of the others."""

LESS: Final = 0.5

SETTLED_S: Final = 60.0
"""How long that must have been so, among the same coordinators: after a restart nodes are on their way by themselves."""

LINKED_S: Final = 60.0
"""A younger link is left alone; a node's own pauses start anew after one that lasted so long."""

AGAIN_S: Final = 3600.0
"""A node is asked once in this time."""

PART: Final = 30
"""One of so many of those too many is asked at a time, but one at least: three a minute, or half of many in seven minutes."""

ENOUGH: Final = 12
"""After so many it is looked at whether they come back here."""

IN_VAIN: Final = 0.75
"""If more than this part of them does, the balancer keeps each address with one coordinator, and asking is in vain."""


class Linked(NamedTuple):
    """A node that is linked here: since when, and whether it has nothing to do. Seconds of the monotonic clock."""

    node_id: str
    since: float
    idle: bool


@dataclass(slots=True)
class Spread:
    """What one coordinator remembers of it. `now` is in seconds of the monotonic clock."""

    in_vain: bool = False
    """Whether nobody is asked, as those who were asked came back."""
    _among: frozenset[str] = frozenset()
    _over_since: float | None = None
    _asked: dict[str, float] = field(default_factory=dict)

    def due(self, own: str, counts: Mapping[str, int], linked: Iterable[Linked], now: float) -> list[str]:
        """The nodes to be asked now.

        Args:
            own: name of this coordinator.
            counts: nodes at each coordinator that takes jobs, this one among them.
            linked: the nodes here.
            now: of this round.
        """
        self._asked = {node_id: at for node_id, at in self._asked.items() if now - at < AGAIN_S}
        share = sum(counts.values()) / len(counts)
        surplus = counts[own] - share
        if self._among != counts.keys() or surplus < 1:
            self._among, self._over_since = frozenset(counts), None
        uneven = surplus > MORE * share or min(counts.values()) < LESS * share
        if self._over_since is None and surplus >= HANDFUL and uneven:
            self._over_since = now
        if self._over_since is None or now - self._over_since < SETTLED_S:
            return []
        here = {node.node_id: node for node in linked}
        self.in_vain = self._come_back(here, now)
        if self.in_vain:
            return []
        ready = [
            node
            for node in here.values()
            if node.idle and now - node.since >= LINKED_S and node.node_id not in self._asked
        ]
        ready.sort(key=lambda node: (node.since, node.node_id))
        chosen = [node.node_id for node in ready[: min(int(surplus), ceil(surplus / PART))]]
        self._asked |= dict.fromkeys(chosen, now)
        return chosen

    def _come_back(self, here: Mapping[str, Linked], now: float) -> bool:
        settled = [node_id for node_id, at in self._asked.items() if now - at >= LINKED_S]
        back = sum(node_id in here for node_id in settled)
        return len(settled) >= ENOUGH and back > IN_VAIN * len(settled)
