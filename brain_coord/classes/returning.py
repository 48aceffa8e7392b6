"""Nodes that were here a moment ago: a short wait for them is better than a refusal."""

from dataclasses import dataclass, field
from typing import Final

RETURN_S: Final = 3.0
"""How long a request waits for a node that just went away; a node dials again after 1 to 4 s."""

REMEMBERED_S: Final = 30.0
"""How long a node that went away is waited for."""


@dataclass(slots=True)
class Returning:
    """Which nodes are likely to come back at once. Times in seconds of the monotonic clock."""

    started: float
    _gone: dict[str, float] = field(default_factory=dict)

    def left(self, node_id: str, now: float, *, draining: bool) -> None:
        """A node's link closed. One that was draining went on purpose."""
        self._gone.pop(node_id, None)
        if not draining:
            self._gone[node_id] = now

    def expected(self, now: float) -> frozenset[str]:
        """The nodes that are waited for."""
        for node_id in [node_id for node_id, at in self._gone.items() if now - at >= REMEMBERED_S]:
            del self._gone[node_id]
        return frozenset(self._gone)

    def everybody(self, now: float) -> bool:
        """Whether the coordinator itself just came back, so that every node it knows may be on its way."""
        return now - self.started < REMEMBERED_S
