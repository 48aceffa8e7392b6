"""The node's side of one slot as a state machine without I/O: job frames and bodies in, jobs and cancellations out."""

from dataclasses import dataclass

from brain_node.contract.messages import Cancel, EndCause, Job, MessageError, decode


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The coordinator wants the running job ended."""

    id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell the coordinator that a job ended before it ran."""

    job_id: str
    cause: EndCause


Body = tuple[bytes, ...]
"""The whole body of the slot's job, in the frames it came in: the job is to start."""

SlotStep = Body | CancelJob | Answer | None


class SlotProtocol:
    """One slot connection: idle, taking a body, or running one job."""

    def __init__(self, body_limit_bytes: int) -> None:
        self._limit = body_limit_bytes
        self._body: list[bytes] = []
        self._missing = 0
        self.job: Job | None = None
        """What holds this slot, from its first frame on."""

    def finished(self) -> None:
        """The job is over."""
        self.job = None
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

    def bytes(self, frame: bytes) -> Body | None:
        """Take one binary message, a part of a body.

        Raises:
            MessageError: it breaks the protocol; the connection is of no more use.
        """
        if self.job is None or not self._missing:
            raise MessageError("a binary frame outside a body")
        missing = self._missing - len(frame)
        if missing < 0:
            raise MessageError("a body longer than announced")
        self._missing = missing
        self._body.append(frame)
        if missing:
            return None
        whole, self._body = tuple(self._body), []
        return whole

    def _offered(self, job: Job) -> SlotStep:
        if self.job is not None:
            raise MessageError("a job on a slot that has one")
        if job.body_bytes > self._limit:
            raise MessageError(f"a body of {job.body_bytes} bytes, above the limit of {self._limit}")
        self.job, self._missing = job, job.body_bytes
        return None if job.body_bytes else ()

    def _cancelled(self, cancel: Cancel) -> SlotStep:
        # A cancel that crossed our `end` on the way names a job that is over: nothing to do, nothing to answer.
        if self.job is None or self.job.id != cancel.id:
            return None
        if not self._missing:
            return CancelJob(cancel.id)
        self.finished()
        return Answer(cancel.id, "cancelled")
