"""One key on two machines: told apart from one machine that reconnects.

A reconnect supersedes the old session and then stays. Two machines with a copied key take the session from each other
again and again, and each time the one that lost it was still alive. After a few such changes in a short time the id
is refused with `duplicate_node` for a while, so that nobody is kicked endlessly and the operator sees why.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

CHANGES: Final = 4
WINDOW_S: Final = 120.0
REFUSE_S: Final = 300.0


@dataclass(slots=True)
class DuplicateGuard:
    """Counts, for one node id, how often a live session was superseded."""

    _changes: deque[float] = field(default_factory=deque)
    _refused_until: float = 0.0

    def superseded(self, now: float) -> None:
        """A session that was alive was replaced by a newer one at `now` (monotonic seconds)."""
        self._changes.append(now)
        while self._changes and self._changes[0] < now - WINDOW_S:
            self._changes.popleft()
        if len(self._changes) >= CHANGES:
            self._refused_until = now + REFUSE_S
            self._changes.clear()

    def refused_for_s(self, now: float) -> float | None:
        """How long a *newcomer* with this id is to stay away, `None` if it may join."""
        return self._refused_until - now if now < self._refused_until else None
