"""One slot connection at the coordinator: idle, or carrying exactly one job.

The connection hands every frame over as it comes. Without a job that can only be something out of turn. While a job runs,
every frame belongs to it: the pieces of its answer go straight on to whoever takes them, within the call that brought them,
and everything else wakes the job. No queue and no task stands between the socket and the stream.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol

from brain_coord.classes.target import Take, Waiting
from brain_coord.link.slot_text import Over, Reply, job_text, read_answer
from brain_node.contract.messages import Cancel, MessageError, encode

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


CANCEL_S: Final = 2.0
"""How long a node may take to answer a cancel with `end` before its connection is closed."""

READ_AHEAD_BYTES: Final = 256 * 1024
"""How much of an answer may come untaken before its connection stops reading, until all of that is taken."""


KEPT_BYTES: Final = 64
"""What it takes at least to keep a frame: of empty ones there could be any number."""


CLOSED: Final = (OSError, RuntimeError)
"""A server signals a closed websocket with either."""


class SlotLost(Exception):  # noqa: N818 — what happened, not what kind of class it is
    """The slot connection ended or broke the protocol while a job was on it."""


class Receiver(Protocol):
    """Who gets what comes on a websocket."""

    def came(self, frame: bytes | str, /) -> None:
        """One message."""

    def ended(self) -> None:
        """Nothing more comes."""


class Frames(Protocol):
    """A websocket that hands its messages over as they come."""

    def hand_to(self, receiver: Receiver) -> None:
        """Everything that comes from now on, and what lies there already."""

    def hold(self) -> None:
        """Read no more for now."""

    def go_on(self) -> None:
        """Read again."""

    async def send_frames(self, text: bytes | None, data: bytes | memoryview | None) -> None:
        """Send a text, or bytes, or a frame of each in one write, the text first. Raises what a closed websocket raises."""


class Slot:
    """A slot connection. `serve` is run by the websocket endpoint; everything else by the job that took the slot."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._loop = asyncio.get_running_loop()
        self._pool: SlotQueue | None = None
        self._served: asyncio.Future[None] = self._loop.create_future()
        self._unread: deque[bytes | str] = deque()
        self._unread_bytes = 0
        self._held = False
        self._gone = False
        """The peer has closed, behind what is unread."""
        self._take: Take | None = None
        self._waiter: asyncio.Future[bytes | str | Waiting] | None = None
        """Of the job, while there is nothing for it: gets what it has to deal with itself."""
        self.closed = False
        self.taken = False
        self.job_id: str | None = None

    async def serve(self, pool: "SlotQueue") -> None:
        """Offer the slot to `pool` whenever it is idle, until the connection ends."""
        self._pool = pool
        pool.opened(self)
        try:
            self._frames.hand_to(self)
            if not self.closed:
                pool.offer(self)
            await self._served
        finally:
            self.close()
            pool.gone(self)

    # --- what the connection says -------------------------------------------------------------------------------------

    def came(self, frame: bytes | str, /) -> None:
        """A frame: for whoever takes the answer, for the job that waits, or out of turn."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            if not self.taken:
                self.close()
            self._unread.append(frame)
            self._unread_bytes = unread_bytes = self._unread_bytes + max(len(frame), KEPT_BYTES)
            if unread_bytes > READ_AHEAD_BYTES and not self._held:
                self._held = True
                self._frames.hold()
        elif (take := self._take) is None or isinstance(frame, str):
            waiter.set_result(frame)
        else:
            try:
                waiting = take(frame)
            except Exception as error:
                waiter.set_exception(error)
            else:
                if waiting is not None:
                    waiter.set_result(waiting)

    def ended(self) -> None:
        """Nothing more comes: a job reads what is there, and is told then."""
        self._gone = True
        if not self.taken:
            self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- what a job does with it --------------------------------------------------------------------------------------

    async def send_job(
        self, job_id: str, model: str, path: str, deadline_s: float, body: bytes, frame_bytes: int
    ) -> None:
        """Send a job and its body, in frames of at most so many bytes.

        Raises:
            SlotLost: the connection is gone.
        """
        self.job_id = job_id
        size = len(body)
        text = job_text(job_id, model, path, deadline_s, size)
        try:
            await self._frames.send_frames(text, body[:frame_bytes] or None)
            if size > frame_bytes:
                rest = memoryview(body)  # its parts are no copies
                for start in range(frame_bytes, size, frame_bytes):
                    await asyncio.sleep(0)  # a large body gives way to everybody else's small frames
                    await self._frames.send_frames(None, rest[start : start + frame_bytes])
        except CLOSED as error:
            self.close()
            raise SlotLost("the node's slot connection closed") from error

    async def read(self, take: Take | None = None) -> bytes | Reply:
        """The next bytes of the answer, or the next message about it.

        Args:
            take: gets the bytes instead, every piece as soon as it is there, until a message comes.

        Raises:
            SlotLost: the connection ended, or the node broke the protocol (the connection is closed then); whatever
                `take` raises comes out as well.
        """
        unread = self._unread
        while True:
            came: bytes | str | Waiting
            if unread and not self.closed:
                came = unread.popleft()
                if not unread:
                    self._unread_bytes = 0
                    if self._held:
                        self._held = False
                        self._frames.go_on()
                if take is not None and isinstance(came, bytes):
                    came = take(came)
            elif self.closed or self._gone:
                self.close()
                raise SlotLost("the node's slot connection closed")
            else:
                self._take, self._waiter = take, self._loop.create_future()
                try:
                    came = await self._waiter
                except asyncio.CancelledError:
                    self._put_back(self._waiter)
                    raise
            if isinstance(came, str):
                try:
                    reply = read_answer(came, self.job_id)
                except MessageError as error:
                    self.close()
                    raise SlotLost(f"the node broke the slot protocol ({error})") from None
                if reply is not None:
                    if type(reply) is Over:
                        self.job_id = None
                    return reply
            elif isinstance(came, bytes):
                return came
            elif came is not None:
                await came

    def _put_back(self, waiter: "asyncio.Future[bytes | str | Waiting]") -> None:
        """Nobody waits any longer; something may have come in the same moment."""
        if waiter.cancelled() or waiter.exception() is not None:
            return
        came = waiter.result()
        if isinstance(came, bytes | str):
            self._unread.appendleft(came)
        elif came is not None:
            came.close()

    async def cancel(self) -> None:
        """End the job that is running and wait, within limits, until the node says that it is over.

        Never raises; a node that does not answer in time loses the connection, which ends the job as well.
        """
        if self.job_id is None or self.closed:
            return
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._frames.send_frames(encode(Cancel(id=self.job_id)).encode(), None)
                while type(await self.read()) is not Over:
                    pass
        except (TimeoutError, SlotLost, *CLOSED):
            self.close()

    def give_back(self) -> None:
        """The job is over; the slot goes back to the pool, or is closed if the job's end was not seen, or it said more."""
        self._take = self._waiter = None
        if self.job_id is not None or self._unread or self._gone:
            self.close()
        elif not self.closed:
            self.taken = False
            if self._pool is not None:
                self._pool.offer(self)

    def close(self) -> None:
        """End the connection: a job that reads from it is told at once; `serve` returns and its endpoint hangs up."""
        if self.closed:
            return
        self.closed = True
        if not self._served.done():
            self._served.set_result(None)
        self._wake()


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

    def idle(self) -> Slot | None:
        """An idle slot, which is taken then; `None` when there is none."""
        while self._idle:
            slot = self._idle.pop()
            if not slot.closed:
                slot.taken = True
                return slot
        return None

    async def take(self) -> Slot:
        """An idle slot; asks the node for another connection when none is open. Bound it with a timeout.

        Raises:
            SlotLost: the session ended.
        """
        if (slot := self.idle()) is not None:
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
