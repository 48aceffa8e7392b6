"""The life of one request: authenticated, decided, tried, relayed, recorded, and only then ended."""

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Literal

import orjson
import structlog

from brain_coord.gateway import sse
from brain_coord.gateway.attempts import Limits, Result, run_attempts, settle
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.http import Headers, Receive, Send, send_error, send_json
from brain_coord.gateway.journal import Journal, Record
from brain_coord.gateway.picker import TargetPicker
from brain_coord.gateway.relay import EngineFault
from brain_coord.gateway.request import ApiRequest
from brain_coord.gateway.sink import ClientStream
from brain_coord.gateway.waiting import WaitingRoom

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
    stall_s: float = 30.0
    body_bytes: int = 32 * 1024 * 1024
    body_idle_s: float = 30.0


class Generation:
    """One request from its decision to its end."""

    def __init__(
        self,
        request: ApiRequest,
        caller: Caller,
        receive: Receive,
        send: Send,
        *,
        began: float,
        decider: Decider,
        waiting: WaitingRoom,
        journal: Journal,
        settings: GatewaySettings,
    ) -> None:
        self._request = request
        self._caller = caller
        self._receive = receive
        self._send = send
        self._journal = journal
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._interrupted: Interruption | None = None
        self._settled = False
        self._stream: ClientStream | None = None
        self.record = Record(
            request=request,
            caller=caller,
            receipt_id="r-" + secrets.token_hex(12),
            wall_time=time.time(),
            began=began,
            decision=decider.decide(request, caller),
            result=Result(),
        )
        self._picker = TargetPicker(self.record, decider, waiting, queue_s=settings.queue_s, share=waiting.limit)

    def interrupt(self, why: Interruption) -> None:
        """End the request early; ignored once its outcome is settled."""
        if self._interrupted is None and (not self._settled or why == "slow_client"):
            self._interrupted = why
            self._task.cancel()

    async def run(self) -> None:
        """Run to the end. Raises nothing that a client could cause."""
        watcher = self._loop.create_task(self._watch_client())
        if self._request.stream:
            self._stream = ClientStream(
                self._send,
                self._headers,
                lambda: self.interrupt("slow_client"),
                keepalive_s=self._settings.keepalive_s,
                stall_s=self._settings.stall_s,
            )
            self._stream.waits()
        try:
            await self._attempt_and_finish()
        finally:
            watcher.cancel()
            if self._stream is not None:
                await self._stream.close()

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.interrupt("client_cancelled")

    async def _attempt_and_finish(self) -> None:
        try:
            try:
                await run_attempts(
                    self._request,
                    self._picker.next,
                    self.record.result,
                    began=self.record.began,
                    limits=self._settings.limits,
                    stream=self._stream,
                )
            finally:
                self._settled = True
            await self._finish()
        except asyncio.CancelledError:
            if self._interrupted is None or self._task.uncancel() > 0:
                raise
            await self._finish_interrupted(self._interrupted)
        except ApiError as error:
            await self._finish_failed(error)

    # --- endings -----------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        record, result = self.record, self.record.result
        if result.tail is not None:
            record.outcome = "completed"
            await self._keep()
            assert self._stream is not None
            await self._stream.end(self._tail_bytes())
        elif result.body is not None:
            await self._finish_whole(result.body)
        elif result.refusal is not None:
            record.outcome, record.error_code = "refused", "engine_refused"
            await self._keep()
            await self._send_refusal(result.refusal)
        else:
            await self._finish_failed(self._failure())

    def _tail_bytes(self) -> bytes:
        """The held-back end of a stream, with `brain` in its last data event and always an end marker."""
        tail, answer = self.record.result.tail, self.record.result.answer
        assert tail is not None
        assert answer is not None
        events = [event for event in tail.events if sse.data_of(event) != b"[DONE]"]
        member = b'"brain":' + orjson.dumps(self.record.brain(monotonic()))
        for at in range(len(events) - 1, -1, -1):
            if sse.data_of(events[at]) is not None:
                events[at] = sse.splice(events[at], member)
                break
        return b"".join(events) + sse.event(b"[DONE]")

    async def _finish_whole(self, body: bytes) -> None:
        record, answer = self.record, self.record.result.answer
        assert answer is not None
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            data = None
        if not isinstance(data, dict):
            await self._finish_failed(fault("engine_error", "the target answered with something that is not JSON"))
            return
        dialect = self._request.dialect
        answer.usage = dialect.usage_of(data)
        answer.clock.output(monotonic(), dialect.text_bytes_of(data))
        answer.finished = True
        answer.passed_on(body)
        record.outcome = "completed"
        await self._keep()
        at = body.rstrip()
        member = b'"brain":' + orjson.dumps(record.brain(monotonic()))
        await send_json(self._send, 200, at[:-1] + (b"," if data else b"") + member + b"}", self._headers())

    async def _send_refusal(self, refusal: EngineFault) -> None:
        """The engine's own 4xx: its body if it is JSON, else ours; in both cases the engine's status."""
        status = refusal.status or 400
        try:
            is_object = isinstance(orjson.loads(refusal.body), dict)
        except orjson.JSONDecodeError:
            is_object = False
        if is_object and isinstance(refusal.error, dict) and "message" in refusal.error:
            await send_json(self._send, status, _with_error_shape(refusal), self._headers())
        else:
            message = (
                str(refusal) if isinstance(refusal.error, str) else f"the engine refused the request (status {status})"
            )
            await send_error(self._send, ApiError(status, "engine_refused", message), self._headers())

    def _failure(self) -> ApiError:
        """The error for a request that no target could answer."""
        record, result = self.record, self.record.result
        code = result.failure or "target_failed"
        brain = {
            "route": record.decision.sentence(),
            "decision": {"class": record.decision.class_decision.to_dict()},
            "attempts": [attempt.to_dict() for attempt in result.attempts],
            "request_id": self._request.request_id,
        }
        told = result.retry_after or ""
        retry_after = int(told) if told.isdigit() else None
        if result.committed:
            return fault("incomplete", "the answer broke off; what was sent stands, nothing else follows", brain=brain)
        if code == "busy" and retry_after is not None:
            return fault(
                "rate_limited", "every target that serves this model is busy", retry_after_s=retry_after, brain=brain
            )
        if code == "deadline":
            return fault("deadline", "the request's deadline passed before an answer", brain=brain)
        if code == "engine_error":
            return fault("engine_error", "the engine failed with an error of its own", brain=brain)
        last = result.reached[-1] if result.reached else None
        if last is None or code in ("busy", "unavailable", "no_capacity"):
            sentence = record.decision.node_sentence() or record.decision.class_decision.reason
            return fault("no_capacity", sentence, retry_after_s=retry_after or 5, brain=brain)
        if last.cause in ("timeout", "not_accepted"):
            return fault("deadline", "no target gave a first output in time", brain=brain)
        return fault(
            "target_failed",
            f"{len(result.reached)} target(s) failed before the first output (last: {last.cause})",
            retry_after_s=2,
            brain=brain,
        )

    async def _finish_failed(self, error: ApiError) -> None:
        record, result = self.record, self.record.result
        record.outcome = "incomplete" if result.committed else "deadline" if error.code == "deadline" else "failed"
        record.error_code = error.code
        if result.reached:
            try:
                await self._keep()
            except ApiError:
                log.exception("receipt lost", request_id=self._request.request_id)
            if error.brain is not None:
                error.brain["receipt"] = record.receipt_id
        await self._tell(error)

    async def _finish_interrupted(self, why: Interruption) -> None:
        record, result = self.record, self.record.result
        if result.tail is not None or result.body is not None:
            return  # settled and recorded; only the last bytes could not be delivered
        if why == "draining":
            record.outcome, record.error_code = "failed", "draining"
            if result.committed:
                record.outcome = "incomplete"
        else:
            record.outcome = why
        if result.reached:
            await self._keep()
        if why not in UNDISTURBED:
            await self._tell(fault("draining", "the coordinator is shutting down; try again shortly", retry_after_s=2))

    async def _tell(self, error: ApiError) -> None:
        if self._stream is not None and self._stream.begun:
            if not self._stream.ended:
                await self._stream.end(sse.event(error.encode()))
        else:
            if self._stream is not None:
                await self._stream.close()
            await send_error(self._send, error, self._headers())

    async def _keep(self) -> None:
        """Settle what the attempts mean for their targets, and make the receipt durable."""
        now = monotonic()
        settle(
            self.record.result,
            streamed=self._request.stream,
            completed=self.record.outcome == "completed",
            prompt=self._request.sha256,
        )
        draft = self.record.draft(now)
        await self._journal.record(draft)
        self.record.kept = draft

    def _headers(self) -> Headers:
        record, target = self.record, self.record.result.target
        headers = [
            (b"x-request-id", self._request.request_id.encode()),
            (b"x-brain-mode", str(record.decision.class_decision.mode).encode()),
            (b"x-brain-receipt", record.receipt_id.encode()),
        ]
        if target is not None:
            headers.append((b"x-brain-target", str(target.resource_class).encode()))
            if target.node_id is not None:
                headers.append((b"x-brain-node", target.node_id.encode()))
        return headers


def _with_error_shape(refusal: EngineFault) -> bytes:
    """The engine's error under the one shape, its own members kept."""
    error = {"message": "", "type": "invalid_request_error", "param": None, "code": None, **refusal.error}
    return orjson.dumps({"error": error})
