"""One slot connection: what arrives on it is handed on at once, and at most one job answers on it."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from brain_node.contract.messages import EndCause, Job, MessageError
from brain_node.link.slot_protocol import Answer, Body, CancelJob, SlotProtocol
from brain_node.link.slot_text import accepted_text, end_text, head_text

TEXT: Final = 0x81
BINARY: Final = 0x82
"""How a whole message of either kind begins on a websocket."""

log = structlog.get_logger(__name__)


class SlotSocket(Protocol):
    """The part of a slot's websocket that a slot uses."""

    @property
    def paused(self) -> bool:
        """Whether the line is full."""

    def put(self, data: bytes, kind: int = BINARY, /) -> None:
        """Put one message into the next `flush`; nothing happens once the connection is over."""

    def flush(self) -> None:
        """Write what was put."""

    async def receive(self, receiver: "Receiver", /) -> None:
        """Hand everything that arrives to `receiver`, until the connection ends, which raises `ConnectionClosed`."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close with a reason."""


class Receiver(Protocol):
    """Who gets what arrives on a slot, and hears when its line is full."""

    def text_came(self, text: str | bytes, /) -> None:
        """One text message."""

    def bytes_came(self, data: bytes, /) -> None:
        """One binary message, or the next part of a large one: a body does not care where it was cut."""

    def pause(self) -> None:
        """The line is full."""

    def resume(self) -> None:
        """The line has room again."""


class Line(Protocol):
    """Where a job's answer goes, in this order."""

    def accepted(self) -> None:
        """The job is taken."""

    def head(self, status: int, content_type: str, retry_after: str | None) -> None:
        """The engine's status is known."""

    def data(self, data: bytes, /) -> None:
        """More of the answer."""

    def flush(self) -> None:
        """Let `head` and `data` go now; nothing else follows at once."""

    def end(self, cause: EndCause | None) -> None:
        """The job is over: well, or why not. The line belongs to the next job from here on."""


class RunningJob(Protocol):
    """A job that was started; it calls `Line.end` exactly once, also when it is cancelled."""

    def cancel(self) -> None:
        """Nobody wants the answer any more."""

    def pause(self) -> None:
        """The line is full."""

    def resume(self) -> None:
        """The line has room again."""


class JobRunner(Protocol):
    """Runs jobs; see `brain_node.relay`."""

    def start(self, job: Job, body: tuple[bytes, ...], line: Line) -> RunningJob | None:
        """Start one job whose answer goes to `line`; `None` when it ended at once."""


class Slot:
    """One slot connection: the receiver of its socket, and the line of the job that holds it.

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
        self.data = self._put = socket.put  # once for each event: not through a method that does nothing else
        self.flush = socket.flush
        self._runner = runner
        self._protocol = SlotProtocol(body_limit_bytes)
        self._busy_changed = busy_changed
        self._call_soon = asyncio.get_running_loop().call_soon
        self._job_id = ""
        self._running: RunningJob | None = None
        self._closing: asyncio.Task[None] | None = None
        self._over = False

    async def serve(self) -> None:
        """Take jobs until the connection closes; then nothing of the last job runs any more.

        Raises:
            ConnectionClosed: the other side closed, or the line broke.
        """
        try:
            await self._socket.receive(self)
        finally:
            self._over = True  # what ends from here on ends without a word: there is nobody left to tell
            if self._running is not None:
                self._running.cancel()
            elif self._protocol.job is not None:
                self._idle()
            if self._closing is not None:
                await asyncio.wait([self._closing])

    # --- what the socket says -----------------------------------------------------------------------------------------

    def text_came(self, text: str | bytes, /) -> None:
        """A message of the coordinator."""
        if self._closing is not None:
            return
        protocol = self._protocol
        idle = protocol.job is None
        try:
            step = protocol.text(text)
        except MessageError as error:
            self._broken(error)
            return
        if idle and protocol.job is not None:
            self._busy_changed(True)
        if step is None:
            return
        if isinstance(step, CancelJob):
            if self._running is not None:
                self._running.cancel()
        elif isinstance(step, Answer):
            self._busy_changed(False)
            self._put(end_text(step.job_id, step.cause), TEXT)
            self.flush()
        else:
            self._start(step)

    def bytes_came(self, data: bytes, /) -> None:
        """A part of a body."""
        if self._closing is not None:
            return
        try:
            body = self._protocol.bytes(data)
        except MessageError as error:
            self._broken(error)
            return
        if body is not None:
            self._start(body)

    def pause(self) -> None:
        """The line is full."""
        if self._running is not None:
            self._running.pause()

    def resume(self) -> None:
        """The line has room again."""
        if self._running is not None:
            self._running.resume()

    def _broken(self, error: MessageError) -> None:
        log.warning("slot_protocol", problem=str(error))
        self._closing = asyncio.get_running_loop().create_task(self._socket.close(1008, str(error)[:120]))

    def _start(self, body: Body) -> None:
        job = self._protocol.job
        assert job is not None
        self._job_id = job.id
        try:
            running = self._runner.start(job, body, self)
        except Exception:
            log.exception("job_failed", job=job.id)
            self.end("engine_lost")
            return
        if running is not None and self._protocol.job is not None:
            self._running = running
            if self._socket.paused:  # by the end of the answer before this one
                running.pause()

    # --- what the job says --------------------------------------------------------------------------------------------

    def accepted(self) -> None:
        """The job is taken: said as soon as the loop has looked at its sockets once more.

        A quick engine's answer lies there by then, and goes along: each write wakes the coordinator.
        """
        self._put(accepted_text(self._job_id), TEXT)
        self._call_soon(self._call_soon, self.flush)

    def head(self, status: int, content_type: str, retry_after: str | None) -> None:
        """The engine's status is known."""
        self._put(head_text(self._job_id, status, content_type, retry_after), TEXT)

    def end(self, cause: EndCause | None) -> None:
        """The job is over; nothing that could bring the next one is read before this returns."""
        self._running = None
        if not self._over:
            self._put(end_text(self._job_id, cause), TEXT)
            self.flush()
        self._idle()

    def _idle(self) -> None:
        self._protocol.finished()
        self._busy_changed(False)
