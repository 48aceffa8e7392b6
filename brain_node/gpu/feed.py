"""Keeping blocking driver calls off the event loop.

One thread of its own reads the cards; callers wait for it a bounded time and then get the last reading with its age. So a
driver call that hangs for a minute delays nobody, and there is never a second call stacked up behind it.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from brain_node.gpu import problems
from brain_node.gpu.records import Inventory, Problem


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of the machine, and how old that is."""

    inventory: Inventory
    """Empty when nothing was ever read."""
    age_s: float | None
    """Seconds since the reading was complete; `None` when there was none yet."""
    waited_s: float = 0.0
    """How long the driver call under way has been silent; 0 when none is."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The inventory's problems, and the driver's silence when this reading is an old one because of it."""
        silent = (problems.driver_silent(self.waited_s),) if self.waited_s else ()
        return (*silent, *self.inventory.problems)


class GpuFeed:
    """Reads the machine on a thread of its own, one reading at a time."""

    def __init__(self, read: Callable[[], Inventory], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._orders: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None]
        self._orders = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: asyncio.Future[None] | None = None
        self._pending_since = 0.0
        self._last: tuple[Inventory, float] | None = None

    def latest(self) -> Reading:
        """Return the last reading at once, without asking the driver."""
        now = self._clock()
        waited = now - self._pending_since if self._pending is not None else 0.0
        if self._last is None:
            return Reading(Inventory(), None, waited)
        inventory, read_at = self._last
        return Reading(inventory, now - read_at, waited)

    async def get(self, patience_s: float = 2.0) -> Reading:
        """Return a fresh reading, or the last one when the driver takes longer than `patience_s` seconds.

        Callers that come while a reading is under way share it.
        """
        if self._pending is None:
            self._order()
        assert self._pending is not None
        with contextlib.suppress(TimeoutError):
            # No `wait_for`: Python 3.11's swallows a cancellation that comes as the reading does, and its caller goes on.
            async with asyncio.timeout(patience_s):
                await asyncio.shield(self._pending)
        return self.latest()

    def close(self) -> None:
        """Let the thread end after the call it is in; it is never waited for, as that call may hang."""
        self._orders.put(None)

    def _order(self) -> None:
        loop = asyncio.get_running_loop()
        self._pending = loop.create_future()
        self._pending_since = self._clock()
        if self._thread is None:
            # A daemon: a hung driver call must not keep the agent from ending.
            self._thread = threading.Thread(target=self._work, name="gpu-feed", daemon=True)
            self._thread.start()
        self._orders.put((loop, self._pending))

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            loop, done = order
            outcome: Inventory | BaseException
            try:
                outcome = self._read()
            except Exception as error:  # whatever it is belongs to the caller, not to this thread
                outcome = error
            # The loop is closed when the agent ended during a hung call.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._finish, done, outcome)

    def _finish(self, done: asyncio.Future[None], outcome: Inventory | BaseException) -> None:
        self._pending = None
        if isinstance(outcome, BaseException):
            done.set_exception(outcome)
            return
        self._last = (outcome, self._clock())
        done.set_result(None)
