"""One job on one engine, from `accepted` to `end`, driven by what its slot and its engine say."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from time import monotonic
from typing import Final

import structlog

from brain_node.contract.messages import EndCause, Job
from brain_node.link.slot import Line
from brain_node.model_name import SMALL_BYTES, AnswerRename, rename_request
from brain_node.relay.deadlines import Deadlines
from brain_node.relay.engine_http import EngineConnection
from brain_node.relay.engine_pool import EnginePool
from brain_node.relay.lease import Endpoint, Lease, Outcome
from brain_node.relay.origin import Origin, origin_of

log = structlog.get_logger(__name__)

IDLE_RACE_S: Final = 1.0
"""A reused connection that breaks within this long was closed by the engine while idle; later, the engine had the job."""


class RelayedJob:
    """Holds a lease until the job is over, which happens exactly once.

    Args:
        job: the job.
        body: its body, in the frames it came in.
        lease: the engine.
        line: where the answer goes.
        pool: connections to engines.
        deadlines: who tells it that its time is over.
        frame_bytes: largest piece of an answer that may be sent.
    """

    _rename: AnswerRename | None = None
    _connection: EngineConnection | None = None
    _preparing: asyncio.Task[None] | None = None
    """What goes before the question: naming the model in a large body, opening a connection."""
    _reused = _retried = _paused = _ended = False
    _asked_at = 0.0
    _status = 0
    _origin: Origin
    _request: bytes

    def __init__(
        self,
        job: Job,
        body: Sequence[bytes],
        lease: Lease,
        line: Line,
        pool: EnginePool,
        deadlines: Deadlines,
        frame_bytes: int,
    ) -> None:
        self._job = job
        self._body = body
        self._lease = lease
        self._line = line
        self.flush = line.flush
        self._pool = pool
        self._deadlines = deadlines
        self._frame_bytes = frame_bytes

    def start(self) -> None:
        """Ask the engine first, as everybody waits for it; then tell the coordinator that the job is taken."""
        job, endpoint = self._job, self._lease.endpoint
        self._origin = origin_of(endpoint.base_url)
        body_bytes = sum(map(len, self._body))
        if endpoint.served_name != job.model:
            self._rename = AnswerRename(endpoint.served_name, job.model)
        if not endpoint.several and endpoint.served_name == job.model:
            self._go(body_bytes)
        elif body_bytes <= SMALL_BYTES:
            self._named(rename_request(b"".join(self._body), endpoint.served_name))
        else:
            self._preparing = asyncio.get_running_loop().create_task(self._name_slowly())
        if self._ended:
            return
        self._line.accepted()
        self._deadlines.add(self, monotonic() + job.deadline_s)

    # --- what the slot says -------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self._over("cancelled", "cancelled")

    def timed_out(self) -> None:
        """It took too long."""
        self._over("timeout", "timeout")

    def failed(self) -> None:
        """Something of ours broke."""
        self._over("engine_lost", "engine_lost")

    def pause(self) -> None:
        """The line is full."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The line has room again."""
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    # --- what the engine says -----------------------------------------------------------------------------------------

    def head(self, status: int, content_type: str, retry_after: str | None) -> None:
        """The engine's status is known."""
        self._status = status
        self._lease.progress()
        self._line.head(status, content_type, retry_after)

    def data(self, data: bytes) -> None:
        """More of the answer. This is the hot place: a frame out for a read in, and nothing else."""
        self._lease.progress()
        if self._rename is not None:
            data = self._rename.feed(data)
        if len(data) <= self._frame_bytes:
            if data:
                self._line.data(data)
            return
        for start in range(0, len(data), self._frame_bytes):
            self._line.data(data[start : start + self._frame_bytes])

    def whole(self) -> None:
        """That was all of it."""
        self._connection = None
        if self._rename is not None and (rest := self._rename.end()):
            self._line.data(rest)
        self._over("engine_error" if self._status >= 500 else "ok", None)

    def lost(self, reason: str, *, heard: bool) -> None:
        """The engine's connection broke."""
        self._connection = None
        if self._reused and not self._retried and not heard and monotonic() - self._asked_at <= IDLE_RACE_S:
            # The engine closed an idle connection just as it was picked: it never saw the job. Once more, on a new one.
            self._retried = True
            self._dial()
            return
        log.warning("engine_lost", job=self._job.id, model=self._job.model, reason=reason)
        self._over("engine_lost", "engine_lost")

    # ------------------------------------------------------------------------------------------------------------------

    async def _name_slowly(self) -> None:
        """Name the model in a large body without making other jobs wait for it."""
        body = b"".join(self._body)
        renamed = await asyncio.to_thread(rename_request, body, self._lease.endpoint.served_name)
        self._preparing = None
        self._named(renamed)

    def _named(self, body: bytes | None) -> None:
        if body is None:
            log.warning("model_not_named", job=self._job.id, model=self._job.model)
            self._over("cancelled", "bad_job")
            return
        self._body = (body,)
        self._go(len(body))

    def _go(self, body_bytes: int) -> None:
        self._request = request_head(self._lease.endpoint, self._origin, self._job.path, body_bytes)
        connection = self._pool.take(self._origin)
        if connection is None:
            self._dial()
        else:
            self._reused = True
            self._ask(connection)

    def _dial(self) -> None:
        self._preparing = asyncio.get_running_loop().create_task(self._dialled())

    async def _dialled(self) -> None:
        try:
            connection = await self._pool.dial(self._origin)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError; the other is a name that cannot be one
            self._preparing = None
            if not self._retried:
                self._over("engine_refused", "engine_refused")
                return
            # The engine died instead of closing an idle connection, so whether it had begun is not known.
            log.warning("engine_lost", job=self._job.id, model=self._job.model, reason=type(error).__name__)
            self._over("engine_lost", "engine_lost")
            return
        self._preparing = None
        self._ask(connection)

    def _ask(self, connection: EngineConnection) -> None:
        self._connection = connection
        self._asked_at = monotonic()
        connection.ask(self, self._request, self._body)
        if self._paused:
            connection.pause()

    def _over(self, outcome: Outcome, cause: EndCause | None) -> None:
        if self._ended:
            return
        self._ended = True
        if self._preparing is not None:
            self._preparing.cancel()
        if self._connection is not None:
            self._connection.hang_up()
            self._connection = None
        try:
            self._line.end(cause)  # before the books: it is waited for
        finally:
            self._deadlines.drop(self)
            self._lease.finished(outcome)


def request_head(endpoint: Endpoint, origin: Origin, path: str, body_bytes: int) -> bytes:
    """The head of the request that asks an engine.

    No Accept-Encoding: the engine need not compress.
    """
    return b"%s%d\r\n\r\n" % (_up_to_length(origin, path, endpoint.api_key), body_bytes)


@lru_cache(maxsize=256)
def _up_to_length(origin: Origin, path: str, api_key: str | None) -> bytes:
    key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
    return (
        f"POST {origin.prefix}{path} HTTP/1.1\r\nHost: {origin.authority}\r\nAccept: */*\r\n{key}"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode("latin-1")
