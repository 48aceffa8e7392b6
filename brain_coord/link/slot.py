"""One slot connection at the coordinator: idle, or carrying exactly one job.

While idle, nobody reads: the connection itself tells when something comes, as that can only be its end or something out of
turn. While a job runs, every frame belongs to the job, which takes what is there and waits only for what is not. No queue
and no task stands between the socket and the stream.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

from brain_coord.link.slot_text import Usual, job_text, read_answer
from brain_node.contract.messages import Accepted, Cancel, End, Head, Job, Message, MessageError, encode

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CANCEL_S: Final = 2.0
"""How long a node may take to answer a cancel with `end` before its connection is closed."""


class SlotLost(Exception):  # noqa: N818 — what happened, not what kind of class it is
    """The slot connection ended or broke the protocol while a job was on it."""


class Frames(Protocol):
    """A websocket whose frames can also be had without waiting."""

    async def receive(self) -> Any:
        """The next event, as an ASGI server gives it."""

    async def send(self, message: Any) -> None:
        """Send an event; one with a text and bytes is a frame of each, the text first, in one write."""

    def poll(self) -> Any:
        """The next event if it is there, else `None`."""

    def alert(self, told: Callable[[], None]) -> None:
        """Call this once, as soon as an event is there."""


class Slot:
    """A slot connection. `serve` is run by the websocket endpoint; everything else by the job that took the slot."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._pool: SlotQueue | None = None
        self._ended: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._kicked = False
        self.closed = False
        self.taken = False
        self.job_id: str | None = None
        self._usual: Usual | None = None

    async def serve(self, pool: "SlotQueue") -> None:
        """Offer the slot to `pool` whenever it is idle, until the connection ends."""
        self._ended = asyncio.get_running_loop().create_future()
        self._pool = pool
        pool.opened(self)
        try:
            if not self.closed:
                self._rest()
                await self._ended
        finally:
            self.close()
            pool.gone(self)

    def _rest(self) -> None:
        """Nothing runs: offer the slot, unless it spoke while nobody listened."""
        self.taken = False
        self._frames.alert(self._spoke)
        if not self.closed and self._pool is not None:
            self._pool.offer(self)

    def _spoke(self) -> None:
        """Something came. Without a job the peer has closed, or spoke out of turn."""
        if not self.taken:
            self.close()

    async def _next(self) -> Any:
        if self.closed:
            raise SlotLost("the node's slot connection closed")
        event = self._frames.poll()
        if event is None:
            self._reader = asyncio.current_task()
            try:
                event = await self._frames.receive()
            except asyncio.CancelledError:
                if self._kicked and self._reader is not None and self._reader.uncancel() == 0:
                    raise SlotLost("the node's slot connection closed") from None
                raise
            finally:
                self._reader = None
                self._kicked = False
        if event["type"] == "websocket.disconnect":
            self.close()
            raise SlotLost("the node's slot connection closed")
        return event

    async def send_job(self, job: Job, body: bytes, frame_bytes: int) -> None:
        """Send the job and its body.

        Raises:
            SlotLost: the connection is gone.
        """
        self.job_id, self._usual = job.id, Usual.of(job.id)
        first = body[:frame_bytes] or None
        await self._transmit({"type": "websocket.send", "text": job_text(job), "bytes": first})
        rest = memoryview(body)  # its parts are no copies
        for start in range(frame_bytes, len(body), frame_bytes):
            await asyncio.sleep(0)  # a large body gives way to everybody else's small frames
            await self._transmit({"type": "websocket.send", "bytes": rest[start : start + frame_bytes]})

    async def _transmit(self, event: MutableMapping[str, Any]) -> None:
        try:
            await self._frames.send(event)
        except (OSError, RuntimeError) as error:  # a server signals a closed websocket with either
            self.close()
            raise SlotLost("the node's slot connection closed") from error

    async def read(self) -> bytes | Message:
        """The next bytes of the answer, or the next message about it.

        Raises:
            SlotLost: the connection ended, or the node broke the protocol (the connection is closed then).
        """
        while True:
            event = await self._next()
            data = event.get("bytes")
            if data is not None:
                return data if type(data) is bytes else bytes(data)
            text, usual = event.get("text") or "", self._usual
            if usual is not None and text == usual.accepted:
                return usual.taken
            if usual is not None and text == usual.ended:
                self.job_id = self._usual = None
                return usual.done
            try:
                message = read_answer(text, self.job_id)
            except MessageError as error:
                self.close()
                raise SlotLost(f"the node broke the slot protocol ({error})") from None
            if isinstance(message, Accepted | Head | End):
                if message.id != self.job_id:
                    self.close()
                    raise SlotLost("the node answered another job than the one it was given")
                if isinstance(message, End):
                    self.job_id = self._usual = None
                return message

    async def cancel(self) -> None:
        """End the job that is running and wait, within limits, until the node says that it is over.

        Never raises; a node that does not answer in time loses the connection, which ends the job as well.
        """
        if self.job_id is None or self.closed:
            return
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._transmit({"type": "websocket.send", "text": encode(Cancel(id=self.job_id))})
                while not isinstance(await self.read(), End):
                    pass
        except (TimeoutError, SlotLost):
            self.close()

    def give_back(self) -> None:
        """The job is over; the slot goes back to the pool, or is closed if the job's end was not seen."""
        if self.job_id is not None:
            self.close()
        elif not self.closed:
            self._rest()

    def close(self) -> None:
        """End the connection: a job that reads from it is told at once; `serve` returns and its endpoint hangs up."""
        if self.closed:
            return
        self.closed = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._kicked = True
            self._reader.cancel()


class SlotQueue:
    """The slot connections of one session, and the jobs that wait for one to open."""

    def __init__(self, request_more: Callable[[int], None]) -> None:
        self._idle: deque[Slot] = deque()
        self._all: set[Slot] = set()
        self._waiters: deque[asyncio.Future[Slot]] = deque()
        self._request_more = request_more
        self._closed: str | None = None

    @property
    def open(self) -> int:
        """How many slot connections are open, idle or busy."""
        return len(self._all)

    def opened(self, slot: Slot) -> None:
        """A new connection of this session."""
        self._all.add(slot)
        if self._closed is not None:
            slot.close()

    def offer(self, slot: Slot) -> None:
        """An idle slot: the longest waiting job takes it, else it is kept (last in, first out: warm ones stay in use)."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                slot.taken = True
                waiter.set_result(slot)
                return
        self._idle.append(slot)

    def gone(self, slot: Slot) -> None:
        """The connection ended."""
        self._all.discard(slot)
        with contextlib.suppress(ValueError):
            self._idle.remove(slot)

    async def take(self) -> Slot:
        """An idle slot; asks the node for another connection when none is open. Bound it with a timeout.

        Raises:
            SlotLost: the session ended.
        """
        while self._idle:
            slot = self._idle.pop()
            if not slot.closed:
                slot.taken = True
                return slot
        if self._closed is not None:
            raise SlotLost(self._closed)
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._request_more(1)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().give_back()  # it came in the same moment: nobody else would give it back
            raise

    def close(self, reason: str) -> None:
        """The session is over: every connection ends, every waiting job is told."""
        self._closed = reason
        for slot in tuple(self._all):
            slot.close()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(SlotLost(reason))
