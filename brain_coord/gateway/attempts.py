"""The one retry loop: try ranked targets until one answers, within the attempts and the time there are.

Nothing else in the product retries a generation. What may be tried again, and what counts against whom:

| what happened | next target? | counts against the target |
|---|---|---|
| paused by its breaker, no free slot | yes, and it was no attempt | no |
| refused, no `accepted`, node lost before the first output | yes | a lost node and a refused connection do |
| 429, 503, 529, an error event that says the same, a node that is full or leaves | yes; the target is asked last for a while | no |
| 400, 413, 422 and others of `PASS_ON` | no, passed on as it is | no |
| 401, 403, 404 from a target | yes; the target is marked `misconfigured` | no |
| engine error (5xx, error event before the first output) | once; two stop the request | yes |
| any further 4xx | as after an engine error | no |
| silence before the first output | once, after the job was cancelled; two stop the request | yes |
| anything after the first output | no: one error event | yes |

A request that is itself a client's retry (`x-stainless-retry-count`, as OpenAI's clients send it) gets one attempt: its
retries times ours would ask nine times for one bad request.

What counts against a target feeds its breaker at once, except for engine errors: whether the prompt was at fault is
known only at the end of the request.
"""

import asyncio
import random
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol

from brain_coord.classes.target import Exchange, JobSpec, ReplyHead, Target, TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.deadline import Deadline
from brain_coord.gateway.passage import LINGER_S
from brain_coord.gateway.relay import (
    EngineFault,
    PhaseLimits,
    engine_error,
    read_whole,
    relay_stream,
    relay_whole,
)
from brain_coord.gateway.request import LARGE_BYTES, ApiRequest
from brain_coord.gateway.result import NOT_ASKED, Result, is_engine_error
from brain_coord.gateway.sink import ClientStream
from brain_coord.measure.speed import StreamClock
from brain_coord.receipts.body import Attempt

MAX_ATTEMPTS: Final = 3
MAX_IN_VAIN: Final = 100
"""Targets that turn a request away unseen, one after the other: who had a slot a moment ago may have none for long."""

ERROR_BODY_BYTES: Final = 1024 * 1024

PASS_ON: Final = frozenset({400, 405, 406, 409, 411, 413, 414, 415, 418, 422, 431, 451})
BUSY: Final = frozenset({429, 503, 529})
"""The last one is what servers of Anthropic's form say when they are overloaded."""

MISCONFIGURED: Final = frozenset({401, 403, 404})

SAID_BUSY: Final = frozenset({"busy", "draining"})
"""Causes by which a target itself turns a job away. Free by the coordinator's count, it would be the first to be asked again."""

FAILURES: Final = ("deadline", "engine_error", "busy", "unavailable", "target_failed", "misconfigured")
"""Why a request failed, the first of these that any of its targets gave cause for; what tells the client most comes first."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request."""

    phases: PhaseLimits = field(default_factory=PhaseLimits)
    whole_s: float = 900.0
    attempts: int = MAX_ATTEMPTS


class Choice(Protocol):
    """Whom to ask next; each target is given out once."""

    def best(self) -> Target | None:
        """The best one that is left and can take the request now."""

    async def wait(self) -> Target | None:
        """The one that could after a wait; `None` when there is none, or nothing comes of waiting."""


async def run_attempts(
    request: ApiRequest,
    choice: Choice,
    result: Result,
    *,
    began: float,
    limits: Limits,
    stream: ClientStream | None,
) -> None:
    """Fill in `result`, which holds every attempt made so far even when this is cancelled.

    Args:
        request: what was asked.
        choice: asked for a target only when one is needed.
        result: filled in as things happen.
        began: when the request arrived, monotonic seconds.
        limits: bounds of this request.
        stream: the client, for a streamed answer.
    """
    while (target := choice.best() or await choice.wait()) is not None:
        if len(request.body) <= LARGE_BYTES:
            body = request.body_for(target.model, several=target.node_id is None)
        else:
            body = await asyncio.to_thread(request.body_for, target.model, several=target.node_id is None)
        started = monotonic()
        remaining = began + limits.whole_s - started
        if remaining <= 0:
            result.failure = "deadline"
            return
        attempt = _Try(
            request, body, target, result, limits.phases, stream, began=began, started=started, remaining=remaining
        )
        if await attempt.run():
            return
        if len(result.reached) >= (1 if request.client_retry else limits.attempts) or result.spent:
            break
        if len(result.attempts) - len(result.reached) >= MAX_IN_VAIN:
            break
    result.failure = next((word for word in FAILURES if word in result.failures), "no_capacity")


class _Try:
    """One attempt."""

    _status: int | None = None

    def __init__(
        self,
        request: ApiRequest,
        body: bytes,
        target: Target,
        result: Result,
        phases: PhaseLimits,
        stream: ClientStream | None,
        *,
        began: float,
        started: float,
        remaining: float,
    ) -> None:
        self._request = request
        self._target = target
        self._result = result
        self._phases = phases
        self._stream = stream
        self._began = began
        self._started = started
        self._remaining = remaining
        self._body = body
        self._ticket = target.health.breaker.begin(started)

    async def run(self) -> bool:
        """Whether the request is settled; `False` asks for the next target."""
        request, result, target, stream = self._request, self._result, self._target, self._stream
        phases, remaining = self._phases, self._remaining
        result.target = target
        result.answer = answer = Answer(StreamClock(self._started), kept=bytearray() if result.keep_bytes else None)
        if self._ticket is None:
            self._over("paused", ran=False, blamed=False)
            return False
        headers = request.forwarded
        if result.trace is not None:
            headers += result.trace.attempt(str(target.resource_class), target.name)
        job = JobSpec(
            f"{request.request_id}-{len(result.attempts) + 1}",
            target.model,
            request.dialect.path,
            self._body,
            remaining,
            headers,
            request.query,
        )
        if stream is not None:
            stream.on_commit = self._succeeded
        limit = Deadline(
            self._started + phases.accept_within_s(len(job.body)),
            every_s=min(phases.accept_s, phases.first_output_s, phases.between_events_s, LINGER_S),
        )
        limit.end = self._started + remaining
        exchange: Exchange | None = None
        cause: str | None = "cancelled"
        settled, ran, blamed = True, True, False
        try:
            with limit:
                exchange = await target.start(job)
                head_s = phases.first_output_s
                if not request.stream:
                    head_s = phases.whole_answer_s(request.max_output_tokens, generates=request.dialect.streams)
                limit.by = monotonic() + head_s
                head = await exchange.head()
                self._status = status = head.status
                if status >= 400:
                    settled = await self._refused(exchange, head, limit)
                    cause, blamed = f"status_{status}", status >= 500 and status not in BUSY
                else:
                    if stream is None:
                        result.body = await relay_whole(exchange, request.dialect, answer, limit, phases)
                    else:
                        usage = request.client_usage
                        result.tail = await relay_stream(
                            exchange, request.dialect, answer, stream, limit, client_usage=usage, limits=phases
                        )
                    cause = None
        except (TargetFault, TimeoutError) as fault:
            if isinstance(fault, TimeoutError):
                fault = self._overdue(limit, accepted=exchange is not None)
            cause, ran, blamed = fault.cause, fault.ran, fault.blame
            why = "deadline" if cause == "deadline" else "unavailable" if cause in SAID_BUSY else "target_failed"
            settled = self._failed(why, asked=cause not in NOT_ASKED)
            result.silences += cause == "timeout"
        except EngineFault as error:
            if error.says_busy and not result.committed:
                cause = "busy"
                settled = self._failed("unavailable", asked=True)
            else:
                cause, blamed = "engine_error", True
                settled = self._failed("engine_error", asked=True)
                result.engine_errors += 1
        finally:
            try:
                if exchange is not None:
                    await exchange.close()
            finally:  # also when the client leaves during that: an attempt that was made is always told
                self._over(cause, ran=ran, blamed=blamed)
        return settled

    def _failed(self, why: str, *, asked: bool) -> bool:
        """Whether the request has failed with it, as output was passed on; if not, the next target may answer."""
        result = self._result
        if result.committed:
            result.failure = "incomplete"
            return True
        if asked:
            result.failures.add(why)
        return False

    def _overdue(self, limit: Deadline, *, accepted: bool) -> TargetFault:
        """What it means that the limit has passed."""
        if monotonic() >= limit.end:
            # No fault of the target: others may have used up the request's time, or it was still answering.
            return TargetFault("deadline", "the request's deadline passed", ran=accepted, blame=False)
        if not accepted:
            return TargetFault("not_accepted", "the target did not accept the job in time", ran=False)
        return TargetFault("timeout", "the engine was silent for too long", ran=True)

    async def _refused(self, exchange: Exchange, head: ReplyHead, limit: Deadline) -> bool:
        """Whether a status of 400 or more settles the request."""
        limit.by = monotonic() + self._phases.first_output_s
        body = await read_whole(exchange, limit, self._phases, ERROR_BODY_BYTES)
        return self._error(engine_error(head.status, body), head.retry_after)

    def _error(self, error: EngineFault, retry_after: str | None) -> bool:
        result, status = self._result, error.status or 500
        if status in PASS_ON:
            result.refusal = error
            return True
        if status in BUSY:
            result.failures.add("busy" if status == 429 else "unavailable")
            result.retry_after = retry_after or result.retry_after
            seconds = retry_after or ""
            self._target.health.busy(monotonic(), float(seconds) if seconds.isascii() and seconds.isdigit() else None)
        elif status in MISCONFIGURED:
            result.failures.add("misconfigured")
            self._target.health.refused_us(monotonic(), status, (self._request.dialect.path, self._target.model))
        else:
            result.engine_errors += 1
            result.failures.add("engine_error")
        return False

    def _over(self, cause: str | None, *, ran: bool, blamed: bool) -> None:
        """It is told, and feeds the breaker unless that has to wait for the end of the request."""
        result, target, now = self._result, self._target, monotonic()
        attempt = Attempt(
            str(target.resource_class),
            target.name,
            target.model,
            round((self._started - self._began) * 1000, 3),
            round((now - self._began) * 1000, 3),
            cause,
            self._status,
            ran,
            blamed,
        )
        if result.trace is not None:
            result.trace.attempted(attempt.to_dict())
        result.attempts.append(attempt)
        if cause not in NOT_ASKED:
            result.reached.append(attempt)
        result.asked.append((target, attempt, self._ticket))
        if cause is None or self._status in PASS_ON:
            self._succeeded()
        elif self._ticket is None:
            return
        elif not blamed:
            target.health.dropped(self._ticket)
            if cause in SAID_BUSY:
                target.health.busy(now, None)
        elif not is_engine_error(attempt):
            # One lost connection takes every job that ran on it, and is one fault.
            incident = f"{cause} at {now:.0f}" if cause in ("node_lost", "connection_lost") else None
            target.health.failed(self._ticket, now, cause, spread=random.random(), incident=incident)  # noqa: S311

    def _succeeded(self) -> None:
        """The target began to answer, or answered."""
        health = self._target.health
        if health.blemished and self._ticket is not None:
            health.succeeded(self._ticket, (self._request.dialect.path, self._target.model))
