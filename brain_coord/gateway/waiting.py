"""The bounded queue of requests for which a free slot is all that is missing, fair between keys."""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field


class QueueFull(Exception):  # noqa: N818
    """More requests wait than the limit allows."""


@dataclass(slots=True)
class WaitingRoom:
    """Requests wait here until capacity may have come; they then decide anew.

    Keys take turns: each time capacity comes, the key that was served longest ago is woken first, and within a key the
    request that waits longest. Everybody who is woken and finds nothing goes back to its old place.
    """

    limit: int
    _queues: OrderedDict[str, deque[asyncio.Future[None]]] = field(default_factory=OrderedDict)
    _waiting: int = 0

    def __len__(self) -> int:
        return self._waiting

    async def wait(self, key: str, timeout_s: float, *, again: bool = False) -> bool:
        """Wait for the next moment at which capacity may be there; `False` when the time is up.

        Args:
            key: whose turn it takes.
            timeout_s: the most to wait, in seconds.
            again: it was woken before and found nothing, so it keeps its place at the head of its key.

        Raises:
            QueueFull: too many wait already.
        """
        if self._waiting >= self.limit and not again:
            raise QueueFull
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(key, deque())
        if again:
            queue.appendleft(future)
        else:
            queue.append(future)
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            if future in queue:
                queue.remove(future)
            if not queue and self._queues.get(key) is queue:
                del self._queues[key]
        return True

    def capacity(self) -> None:
        """Capacity may have come: wake the next request of each key, keys in turn."""
        for key in list(self._queues):
            queue = self._queues[key]
            while queue:
                future = queue.popleft()
                if not future.done():
                    future.set_result(None)
                    break
            self._queues.move_to_end(key)
