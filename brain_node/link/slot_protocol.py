"""The node's side of one slot as a state machine without I/O: job frames and bodies in, jobs and cancellations out."""

from dataclasses import dataclass

from brain_node.contract.messages import Cancel, EndCause, Job, MessageError, decode


@dataclass(frozen=True, slots=True)
class StartJob:
    """The whole body is there."""

    job: Job
    body: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The coordinator wants the running job ended."""

    id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell the coordinator that a job ended before it ran."""

    job_id: str
    cause: EndCause


SlotStep = StartJob | CancelJob | Answer | None


class SlotProtocol:
    """One slot connection: idle, taking a body, or running one job."""

    def __init__(self, body_limit_bytes: int) -> None:
        self._limit = body_limit_bytes
        self._job: Job | None = None
        self._body: list[bytes] = []
        self._missing = 0
        self._running = False
        self.busy = False
        """Whether a job holds this slot, its body counted."""

    def finished(self) -> None:
        """The running job is over; its `end` is about to be sent."""
        self._job, self.busy, self._running = None, False, False
        if self._body:
            self._body = []

    def text(self, text: str | bytes) -> SlotStep:
        """Take one text message from the coordinator.

        Raises:
            MessageError: it breaks the protocol; the connection is of no more use.
        """
        message = decode(text)
        if isinstance(message, Job):
            return self._offered(message)
        if isinstance(message, Cancel):
            return self._cancelled(message)
        if message is None:
            return None
        raise MessageError(f"`{message.TYPE}` on a slot")

    def bytes(self, frame: bytes) -> StartJob | None:
        """Take one binary message, a part of a body.

        Raises:
            MessageError: it breaks the protocol; the connection is of no more use.
        """
        if self._job is None or self._running:
            raise MessageError("a binary frame outside a body")
        if len(frame) > self._missing:
            raise MessageError("a body longer than announced")
        self._body.append(frame)
        self._missing -= len(frame)
        return self._whole() if not self._missing else None

    def _offered(self, job: Job) -> SlotStep:
        if self._job is not None:
            raise MessageError("a job on a slot that has one")
        if job.body_bytes > self._limit:
            raise MessageError(f"a body of {job.body_bytes} bytes, above the limit of {self._limit}")
        self._job, self.busy, self._missing = job, True, job.body_bytes
        return self._whole() if not self._missing else None

    def _whole(self) -> StartJob:
        assert self._job is not None
        start = StartJob(self._job, tuple(self._body))
        self._running, self._body = True, []
        return start

    def _cancelled(self, cancel: Cancel) -> SlotStep:
        # A cancel that crossed our `end` on the way names a job that is over: nothing to do, nothing to answer.
        if self._job is None or self._job.id != cancel.id:
            return None
        if self._running:
            return CancelJob(cancel.id)
        self.finished()
        return Answer(cancel.id, "cancelled")
