"""The I/O shell of one slot connection: one reader, and at most one job beside it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from websockets.exceptions import ConnectionClosed

from brain_node.contract.messages import End, Job, MessageError, encode
from brain_node.link.slot_protocol import Answer, CancelJob, SlotProtocol, StartJob

log = structlog.get_logger(__name__)

Send = Callable[[str | bytes], Awaitable[None]]


class SlotSocket(Protocol):
    """The part of a websocket that a slot uses."""

    async def recv(self) -> str | bytes:
        """The next frame."""

    async def put(self, message: str | bytes, /) -> None:
        """Send one frame; returns when the line has room for more."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close with a reason."""


class JobRunner(Protocol):
    """Runs one job; see `brain_node.relay`."""

    async def run(self, job: Job, body: tuple[bytes, ...], send: Send) -> End:
        """Run it, sending `accepted`, `head` and the answer's bytes; the returned `end` is sent by the slot."""


class Slot:
    """One slot connection.

    Args:
        socket: an open websocket.
        runner: what runs jobs.
        body_limit_bytes: largest body accepted.
        busy_changed: called with True when a job arrives and False when it is over.
    """

    def __init__(
        self, socket: SlotSocket, runner: JobRunner, body_limit_bytes: int, busy_changed: Callable[[bool], None]
    ) -> None:
        self._socket = socket
        self._runner = runner
        self._protocol = SlotProtocol(body_limit_bytes)
        self._busy_changed = busy_changed
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a job holds this slot."""
        return self._protocol.busy

    async def serve(self) -> None:
        """Take jobs until the connection closes; then nothing of the last job runs any more.

        Raises:
            ConnectionClosed: the other side closed, or the line broke.
        """
        try:
            while True:
                await self._take(await self._socket.recv())
        except MessageError as error:
            log.warning("slot_protocol", problem=str(error))
            await self._socket.close(1008, str(error)[:120])
        finally:
            await self._abandon()
            if self.busy:
                self._over()

    async def _take(self, frame: str | bytes) -> None:
        was_busy = self.busy
        step = self._protocol.received(frame)
        if self.busy and not was_busy:
            self._busy_changed(True)
        if isinstance(step, StartJob):
            self._task = asyncio.create_task(self._run(step))
        elif isinstance(step, CancelJob) and self._task is not None:
            # Not at once: a task that is cancelled before its first step never gets to answer `end`.
            asyncio.get_running_loop().call_soon(self._task.cancel)
        elif isinstance(step, Answer):
            self._busy_changed(False)
            await self._socket.put(encode(step.end))

    async def _run(self, start: StartJob) -> None:
        try:
            end = await self._runner.run(start.job, start.body, self._socket.put)
        except asyncio.CancelledError:
            end = End(id=start.job.id, ok=False, cause="cancelled")
        except ConnectionClosed:
            return  # the reader sees it too and ends the slot
        except Exception:
            log.exception("job_failed", job=start.job.id)
            end = End(id=start.job.id, ok=False, cause="engine_lost")
        # Idle before the `end` leaves: the next job may come as soon as the coordinator has it.
        self._over()
        try:
            await self._socket.put(encode(end))
        except ConnectionClosed:
            return

    def _over(self) -> None:
        self._protocol.finished()
        self._busy_changed(False)

    async def _abandon(self) -> None:
        """End the running job without a word: there is nobody left to tell."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
