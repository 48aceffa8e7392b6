"""The slot connections of one session: opened ahead of demand, backed off on faults, all gone with the session."""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from brain_node.contract.limits import MAX_LINK_MESSAGE_BYTES
from brain_node.contract.messages import Welcome
from brain_node.link.backoff import Backoff, BackoffPolicy
from brain_node.link.dial import Dialer
from brain_node.link.faults import Fault, fault_of
from brain_node.link.slot import JobRunner, Slot
from brain_node.link.slot_pool import SlotPool
from brain_node.link.wire import SlotConnection

log = structlog.get_logger(__name__)

POLICY: Final = BackoffPolicy(start_s=0.0, window_s=1.0, cap_s=30.0, slow_s=5.0, stable_after_s=10.0)

OpenSlot = Callable[[], Awaitable[SlotConnection]]


def slot_opener(dialer: Dialer, welcome: Welcome) -> OpenSlot:
    """How to open one slot connection of a session."""

    async def open_slot() -> SlotConnection:
        return await dialer.slot(welcome.slot_ticket, max(welcome.limits.frame_bytes, MAX_LINK_MESSAGE_BYTES))

    return open_slot


class Slots:
    """Keeps the slot connections of one session.

    Args:
        open_slot: opens one.
        runner: runs the jobs that arrive.
        slots: most connections to hold.
        spare: idle ones to hold ahead of demand.
        body_limit_bytes: largest body accepted.
    """

    def __init__(
        self,
        open_slot: OpenSlot,
        runner: JobRunner,
        slots: int,
        spare: int,
        body_limit_bytes: int,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._open_slot = open_slot
        self._runner = runner
        self._body_limit = body_limit_bytes
        # One spare at least: with none, the first job of all would have nowhere to arrive.
        self.pool = SlotPool(slots=slots, spare=max(1, spare))
        self._backoff = Backoff(POLICY, draw)
        self._retry_at = 0.0
        self._changed = asyncio.Event()
        self._wake_at: float | None = None
        """When `run` looks again by itself."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: dict[int, SlotConnection] = {}
        self._ids = itertools.count(1)
        self.fault: Fault | None = None
        """Why the last connection could not be opened; `None` once one was."""

    def set_slots(self, slots: int) -> None:
        """The node offers another number of slots from now on."""
        self.pool.slots = slots
        self._changed.set()

    def ask(self, n: int) -> None:
        """The coordinator wants `n` more connections now."""
        self.pool.ask(n)
        self._changed.set()

    async def run(self) -> None:
        """Hold the connections until cancelled; then all are closed and their jobs' engine work is ended."""
        try:
            while True:
                self._adjust(time.monotonic())
                await self._wait()
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks))

    def _adjust(self, now: float) -> None:
        if now >= self._retry_at:
            for _ in range(self.pool.to_open()):
                self.pool.opening += 1
                self._spawn(self._connection(next(self._ids)))
        for slot in self.pool.to_close(now):
            self.pool.closed(slot)
            self._spawn(self._retire(slot))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _retire(self, slot: int) -> None:
        if slot in self._sockets and slot not in self.pool.active:  # else it ended by itself, or a job came just now
            await self._sockets[slot].close(1000, "idle")

    async def _wait(self) -> None:
        now = time.monotonic()
        times = [self._retry_at] if self._retry_at > now else []
        if (close_at := self.pool.next_close_at()) is not None:
            times.append(close_at)
        self._wake_at = min(times) if times else None
        try:
            async with asyncio.timeout(None if self._wake_at is None else max(0.0, self._wake_at - now)):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    async def _connection(self, slot: int) -> None:
        opened = False
        try:
            socket = await self._open_slot()
            opened = True
        except Exception as error:
            self._failed(fault_of(error, time.time()))
            return
        finally:
            # Also when cancelled: the count must not leak.
            self.pool.opening -= 1
            if not opened:
                self._changed.set()
        self.fault = None
        self._sockets[slot] = socket
        self.pool.opened(slot, time.monotonic())
        self._changed.set()
        try:
            await Slot(socket, self._runner, self._body_limit, partial(self._busy, slot)).serve()
        except Exception as error:
            # A slot that ends is routine; only the link decides whether the coordinator is gone.
            log.debug("slot_closed", reason=str(fault_of(error, time.time())))
        finally:
            self._sockets.pop(slot, None)
            was_open = slot in self.pool.active or slot in self.pool.idle_since
            self.pool.closed(slot)
            if was_open:
                self._pause()
            self._changed.set()
            await socket.close()

    def _busy(self, slot: int, busy: bool) -> None:
        if slot not in self._sockets:
            return
        # Called twice for each job: `run` is woken only when it has something to do before it wakes by itself.
        if busy:
            self.pool.took_job(slot)
            # It carried work: whatever closes it later, opening works.
            if self._backoff.failures:
                self._backoff.reset()
            if len(self.pool.idle_since) < self.pool.spare:
                self._changed.set()
            return
        pool = self.pool
        pool.idle(slot, time.monotonic())
        # While `run` waits for a time, it looks soon enough by itself: the longest idle one is never an older one.
        if (self._wake_at is None or pool.open > pool.slots) and pool.next_close_at() is not None:
            self._changed.set()

    def _pause(self) -> None:
        """A connection that we did not close ended: open its successor after a back-off, not in a tight loop."""
        now = time.monotonic()
        if now >= self._retry_at:
            self._retry_at = now + self._backoff.down(now)

    def _failed(self, fault: Fault) -> None:
        now = time.monotonic()
        if now >= self._retry_at:
            self._retry_at = now + self._backoff.down(now, retry_after_s=fault.retry_after_s, slow=fault.slow)
            log.warning("slot_open_failed", reason=str(fault), retry_in_s=round(self._retry_at - now, 1))
        self.fault = fault
