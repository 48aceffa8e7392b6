"""The bounded queue of requests for which capacity is all that is missing, fair between keys."""

import asyncio
from bisect import insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from operator import attrgetter


class QueueFull(Exception):  # noqa: N818
    """No place in the queue.

    Attributes:
        own: the key's share is used up, not the whole queue.
    """

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        self.own = own


@dataclass(slots=True, eq=False)
class Waiter:
    """One request's place in the queue, kept until it leaves.

    Attributes:
        key: whose turn it takes.
        lane: requests of one lane can be served by exactly the same capacity.
        order: when it came, compared to all others.
        node: the only node that can serve it, if the request names one.
        awake: capacity was offered to it, and it has not yet said whether it could use it.
    """

    key: str
    lane: Hashable
    order: int
    node: str | None = None
    awake: bool = False
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Capacity may be there for it."""
        self.awake = True
        self._event.set()

    async def woken(self, timeout_s: float) -> bool:
        """Wait until capacity may have come; `False` when the time is up.

        Called again, it says that there was none: the waiter keeps its place.
        """
        self.awake = False
        self._event.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return self.awake
        return True


class WaitingRoom:
    """Requests wait here until capacity may have come; they then decide anew.

    Keys take turns: of those that wait, the key that was served longest ago is woken first, and within a key the
    request that waits longest. In each lane one request at a time is awake. If it is served the next one is woken, as
    there may be more capacity; if it is not, nobody in its lane could be.

    Args:
        limit: the most requests that wait.
        on_queue: told the id of a node, and 1 or -1, when a request begins or ceases to wait for that node and no other.
    """

    def __init__(self, limit: int, on_queue: Callable[[str, int], None] = lambda _, __: None) -> None:
        self.limit = limit
        self._on_queue = on_queue
        self._lanes: dict[Hashable, dict[str, list[Waiter]]] = {}
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._arrivals = 0

    def __len__(self) -> int:
        return sum(self._counts.values())

    def waiting(self, key: str) -> int:
        """How many requests of a key wait."""
        return self._counts.get(key, 0)

    def enter(self, key: str, lane: Hashable, share: int, order: int | None = None, node: str | None = None) -> Waiter:
        """Take a place. Whoever enters must leave, however it ends.

        Args:
            key: whose turn it takes.
            lane: everything that decides by what capacity it can be served.
            share: the most requests that the key may have here.
            order: of the place it had before, to get it again.
            node: the only node that can serve it.

        Raises:
            QueueFull: too many wait already.
        """
        if self.waiting(key) >= share:
            raise QueueFull(own=True)
        if len(self) >= self.limit:
            raise QueueFull(own=False)
        if order is None:
            self._arrivals += 1
            order = self._arrivals
        waiter = Waiter(key, lane, order, node)
        insort(self._lanes.setdefault(lane, {}).setdefault(key, []), waiter, key=attrgetter("order"))
        self._counts[key] = self.waiting(key) + 1
        if node is not None:
            self._on_queue(node, 1)
        return waiter

    def leave(self, waiter: Waiter, *, served: bool) -> None:
        """Give the place up: served, or for any other reason."""
        keys = self._lanes[waiter.lane]
        keys[waiter.key].remove(waiter)
        if not keys[waiter.key]:
            del keys[waiter.key]
        if not keys:
            del self._lanes[waiter.lane]
        self._counts[waiter.key] -= 1
        if not self._counts[waiter.key]:
            del self._counts[waiter.key]
        if waiter.node is not None:
            self._on_queue(waiter.node, -1)
        if served:
            self._took_turn(waiter.key)
        if served or waiter.awake:  # capacity that was offered and not used must not be lost
            self._wake(waiter.lane)

    def _took_turn(self, key: str) -> None:
        self._turn += 1
        self._turns.pop(key, None)
        self._turns[key] = self._turn
        if not self._counts:
            self._turns.clear()
        elif len(self._turns) > 4 * self.limit:
            del self._turns[next(iter(self._turns))]

    def capacity(self) -> None:
        """Capacity may have come: wake the next request of each lane, the lanes too in the order of their keys' turns."""
        if not self._lanes:
            return
        for lane in sorted(self._lanes, key=lambda lane: self._rank(self._next(lane))):
            self._wake(lane)

    def _next(self, lane: Hashable) -> Waiter:
        return min((waiters[0] for waiters in self._lanes[lane].values()), key=self._rank)

    def _rank(self, waiter: Waiter) -> tuple[int, int]:
        return self._turns.get(waiter.key, 0), waiter.order

    def _wake(self, lane: Hashable) -> None:
        if lane not in self._lanes:
            return
        if any(waiter.awake for waiters in self._lanes[lane].values() for waiter in waiters):
            return  # it decides after this moment, so it sees this capacity too
        self._next(lane).wake()
