"""The life of one request: authenticated, decided, tried, relayed, recorded, and only then ended."""

import asyncio
import time
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final, Literal

import structlog

from brain_coord.gateway.attempts import Limits, run_attempts
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.errors import ApiError, draining, fault
from brain_coord.gateway.http import Connection, send_error, send_json
from brain_coord.gateway.ids import receipt_id_at
from brain_coord.gateway.journal import Journal, Record
from brain_coord.gateway.limits import PlanLimits
from brain_coord.gateway.picker import TargetPicker
from brain_coord.gateway.relay import LARGE_BYTES
from brain_coord.gateway.reply import failure_of, refusal_of, reply_lines, tail_bytes, whole_bytes, whole_pieces
from brain_coord.gateway.request import ApiRequest
from brain_coord.gateway.result import Result, settle
from brain_coord.gateway.sink import ClientStream
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.gateway.watch import Watch
from brain_coord.receipts.body import ReceiptDraft

log = structlog.get_logger("brain.request")

Interruption = Literal["client_cancelled", "slow_client", "draining"]

UNDISTURBED: Final = ("client_cancelled", "slow_client")
"""Interruptions after which nobody is there to be told."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Bounds of every request; times in seconds."""

    limits: Limits = field(default_factory=Limits)
    queue_s: float = 10.0
    keepalive_s: float = 20.0
    body_bytes: int = 32 * 1024 * 1024
    bodies_bytes: int = 512 * 1024 * 1024
    body_idle_s: float = 30.0
    body_bytes_per_s: float = 8 * 1024
    cors_origins: tuple[str, ...] = ()


class Generation:
    """One request from its decision to its end."""

    _interrupted: Interruption | None = None
    _settled = False
    _judged = False
    _ended = 0.0
    _draft: ReceiptDraft | None = None
    _stream: ClientStream | None = None

    def __init__(
        self,
        request: ApiRequest,
        caller: Caller,
        connection: Connection,
        *,
        began: float,
        decider: Decider,
        waiting: WaitingRoom,
        journal: Journal,
        settings: GatewaySettings,
        limits: PlanLimits,
        watch: Watch | None = None,
    ) -> None:
        self._request = request
        self._connection = connection
        self._journal = journal
        self._settings = settings
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        wall_time = time.time()
        self.record = Record(
            request=request,
            caller=caller,
            receipt_id=receipt_id_at(wall_time),
            wall_time=wall_time,
            began=began,
            decision=decider.decide(request, caller),
            result=Result(),
        )
        self._watch = watch
        if watch is not None:
            self.record.result.keep_bytes = watch.begins(request, self.record.decision)
        self._picker = TargetPicker(self.record, decider, waiting, queue_s=settings.queue_s, limits=limits)

    def interrupt(self, why: Interruption) -> None:
        """End the request early; ignored once its outcome is settled."""
        if self._interrupted is None and not self._settled:
            self._interrupted = why
            self._task.cancel()

    async def run(self) -> None:
        """Run to the end. Raises nothing that a client could cause."""
        if self._request.stream:
            lines = partial(reply_lines, self.record)
            self._stream = ClientStream(self._connection, lines, keepalive_s=self._settings.keepalive_s)
        self._connection.watch(self._client_left)
        try:
            try:  # targets, until the outcome is settled, or somebody interrupts
                await run_attempts(
                    self._request,
                    self._picker,
                    self.record.result,
                    began=self.record.began,
                    limits=self._settings.limits,
                    stream=self._stream,
                )
            except asyncio.CancelledError:
                if self._interrupted is None or self._task.uncancel() > 0:
                    raise
            finally:
                self._settled = True
            await self._finish()
        except ApiError as error:
            await self._finish_failed(error)
        except Exception:
            log.exception("request failed", request_id=self._request.request_id)
            await self._finish_failed(fault("internal", "a fault of the coordinator; its log has the request id"))
        finally:
            if self._stream is not None and not self._stream.ended:
                await self._stream.close()

    def _client_left(self) -> None:
        self.interrupt("slow_client" if self._connection.stalled else "client_cancelled")

    # --- endings -----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        record, result = self.record, self.record.result
        if result.tail is not None:
            assert self._stream is not None
            self._complete(b"".join(result.tail.events))
            await self._keep()
            await self._stream.end(tail_bytes(record, result.tail))
        elif result.body is not None:
            if len(result.body) <= LARGE_BYTES:
                self._complete(result.body)
                await self._keep()
                await send_json(self._connection, 200, whole_bytes(record, result.body), reply_lines(record))
            else:
                assert result.answer is not None
                await asyncio.to_thread(result.answer.ends_with, result.body)
                self._complete()
                await self._keep()
                body, end = whole_pieces(record, result.body)
                await send_json(self._connection, 200, body, reply_lines(record), end)
        elif result.refusal is not None:
            record.outcome, record.error_code = "refused", "engine_refused"
            await self._keep()
            await self._refuse(result.refusal)
        elif self._interrupted is not None:
            await self._finish_interrupted(self._interrupted)
        else:
            await self._finish_failed(failure_of(record))

    def _complete(self, rest: bytes = b"") -> None:
        """The answer is whole: its hash is over all of it, before its end leaves."""
        answer = self.record.result.answer
        assert answer is not None
        if rest:
            answer.ends_with(rest)
        self.record.outcome = "completed"
        target = self.record.result.target
        if answer.kept is not None and self._watch is not None and target is not None:
            self._watch.ends(self._request, self.record.decision, target, answer)
        answer.seal()

    async def _refuse(self, refusal: EngineFault) -> None:
        """Pass an engine's own 4xx on: as it came, if it has the form's shape and no comment has fixed another status."""
        await self._quiet()
        if not self._begun and refusal.data is not None and self._request.dialect.is_error(refusal.data):
            await send_json(self._connection, refusal.status or 400, refusal.body, reply_lines(self.record))
        else:
            await self._tell(refusal_of(refusal))

    async def _finish_failed(self, error: ApiError) -> None:
        record, result = self.record, self.record.result
        if result.answer is not None and (result.body is not None or result.tail is not None):
            # It was whole, but could not be recorded: the client gets nothing of it, or not the end.
            result.answer.end_not_given()
            if not result.committed:
                result.answer = None
        record.outcome = "incomplete" if result.committed else "deadline" if error.code == "deadline" else "failed"
        record.error_code = error.code
        await self._keep_anyhow()
        if result.reached and error.brain is not None:
            error.brain["receipt"] = record.receipt_id
        await self._tell(error)

    async def _finish_interrupted(self, why: Interruption) -> None:
        record, result = self.record, self.record.result
        if why == "draining":
            record.outcome, record.error_code = "failed", "draining"
            if result.committed:
                record.outcome = "incomplete"
        else:
            record.outcome = why
        await self._keep_anyhow()
        if why not in UNDISTURBED:
            await self._tell(draining())

    @property
    def _begun(self) -> bool:
        """Whether the status has left."""
        return self._stream is not None and self._stream.begun

    async def _quiet(self) -> None:
        if self._stream is not None:
            await self._stream.close()

    async def _tell(self, error: ApiError) -> None:
        """Give the client the error: as the answer, or as the one event that ends a stream which has begun."""
        dialect, request_id = self._request.dialect, self._request.request_id
        await self._quiet()
        if not self._begun:
            lines = reply_lines(self.record)
            await send_error(self._connection, error, lines, dialect.error_body(error, request_id))
        elif self._stream is not None and not self._stream.ended:
            await self._stream.end(dialect.error_event(error, request_id))

    async def _keep(self) -> None:
        """Make the receipt durable, and settle what the attempts mean for their targets, once."""
        self._ended = monotonic()
        try:
            # In this request's context, as it may be run among others, and its log lines carry the request's ids.
            await self._journal.record(self._request.request_id, partial(copy_context().run, self._concluded))
        finally:
            self._settle()
        self.record.kept = self._draft

    async def _keep_anyhow(self) -> None:
        """Record a request that failed. Whatever keeps it from that, its client is still told of its end."""
        if self.record.result.reached:
            try:
                await self._keep()
            except Exception:
                log.exception("receipt lost", request_id=self._request.request_id)

    def _concluded(self) -> ReceiptDraft:
        """The receipt, and with it what is learnt of the request: the client waits for a commit anyway."""
        self._settle()
        self._draft = self.record.draft(self._ended)
        return self._draft

    def _settle(self) -> None:
        if not self._judged:
            self._judged = True
            settle(self._request, self.record.result, completed=self.record.outcome == "completed")
