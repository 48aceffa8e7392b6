"""Why requests passed a node by, counted without looking at every node for every request. Pure.

A request only raises one counter for what it asked (`Ask`). A node's reason to be passed by changes rarely: when it comes or
goes, is degraded, benchmarked, filled up. Whenever it does, what was asked since the last change is charged to the
reason that held meanwhile. So a request costs O(1) and a change O(kinds of requests), whatever the size of the fleet.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WINDOW_S: Final = 3600.0
BUCKET_S: Final = 300.0

MOST_ASKS: Final = 48
"""Kinds of requests told apart; beyond it region and budget of further ones are ignored. Clients choose them, and each costs
every node memory for an hour, and time whenever it is charged."""

OUTRANKED: Final = "another node ranked higher"
"""Passed by though it could have taken the request."""


class Ask(NamedTuple):
    """What of a request can make a node unfit for it."""

    model: str
    region: str | None = None
    """Required region."""
    max_ask_usd_per_1m: float | None = None


Reason = Callable[[Ask], str | None]
"""Why a node cannot take a request, `None` when it can."""


@dataclass(slots=True)
class SkipTally:
    """One node's share: what it was charged with lately."""

    seen: dict[Ask, int] = field(default_factory=dict)
    taken: Counter[Ask] = field(default_factory=Counter)
    reason: Reason | None = None
    _buckets: deque[tuple[float, Counter[str]]] = field(default_factory=deque)

    def add(self, now: float, reason: str, count: int = 1) -> None:
        """Charge `count` requests to a reason; `now` in seconds of the monotonic clock."""
        if not self._buckets or now - self._buckets[-1][0] >= BUCKET_S:
            self._buckets.append((now, Counter()))
        self._buckets[-1][1][reason] += count
        self._expire(now)

    def _expire(self, now: float) -> None:
        while self._buckets and self._buckets[0][0] < now - WINDOW_S:
            self._buckets.popleft()

    def counts(self, now: float) -> dict[str, int]:
        """Skips of the last hour by reason, most frequent first."""
        self._expire(now)
        total: Counter[str] = Counter()
        for _, counts in self._buckets:
            total.update(counts)
        return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


@dataclass(slots=True)
class SkipBook:
    """What was asked of one class of nodes since the coordinator started."""

    asked: dict[Ask, int] = field(default_factory=dict)

    def request(self, ask: Ask) -> Ask:
        """One request came; returns what it counts as."""
        asked = self.asked
        count = asked.get(ask)
        if count is None:
            if len(asked) >= MOST_ASKS:
                ask = Ask(ask.model)
            count = asked.get(ask, 0)
        asked[ask] = count + 1
        return ask

    def enter(self, tally: SkipTally, reason: Reason) -> None:
        """A node is new: what was asked before it came is none of its business."""
        tally.seen = dict(self.asked)
        tally.reason = reason

    def turn(self, tally: SkipTally, now: float, reason: Reason) -> None:
        """Something about the node changed: charge what was asked until now to what held, from now on `reason` holds."""
        self.charge(tally, now)
        tally.reason = reason

    def charge(self, tally: SkipTally, now: float) -> None:
        """Charge what was asked since the last time."""
        for ask, total in self.asked.items():
            missed = total - tally.seen.get(ask, 0)
            if not missed:
                continue
            tally.seen[ask] = total
            missed -= tally.taken.pop(ask, 0)
            if missed > 0 and tally.reason is not None:
                tally.add(now, tally.reason(ask) or OUTRANKED, missed)
