"""The one retry loop: try ranked targets until one answers, within the attempts and the time there are.

Nothing else in the product retries a generation. What may be tried again, and what counts against whom:

| what happened | next target? | counts against the target |
|---|---|---|
| paused by its breaker, no free slot | yes, and it was no attempt | no |
| refused, no `accepted`, node lost before the first output | yes | a lost node and a refused connection do |
| 429, 503 | yes; the target is asked last for a while | no |
| 400, 413, 422 and other 4xx | no, passed on as it is | no |
| 401, 403, 404 from a target | yes; the target is marked `misconfigured` | no |
| engine error (5xx, error event before the first output) | once; two stop the request | yes |
| silence before the first output | once, after the job was cancelled; two stop the request | yes |
| anything after the first output | no: one error event | yes |

A request that is itself a client's retry (`x-stainless-retry-count`, as OpenAI's clients send it) gets one attempt: its
retries times ours would ask nine times for one bad request.

What counts against a target feeds its breaker at once, except for engine errors: whether the prompt was at fault is
known only at the end of the request.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from brain_coord.classes.breaker import Ticket
from brain_coord.classes.target import Exchange, JobSpec, Target, TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.deadline import Deadline
from brain_coord.gateway.relay import (
    EngineFault,
    PhaseLimits,
    Tail,
    engine_error,
    read_whole,
    relay_stream,
    relay_whole,
)
from brain_coord.gateway.request import ApiRequest
from brain_coord.gateway.sink import ClientStream
from brain_coord.measure.speed import StreamClock
from brain_coord.observe.trace import RequestTrace
from brain_coord.receipts.body import Attempt

MAX_ATTEMPTS: Final = 3
MAX_ENGINE_ERRORS: Final = 2
MAX_SILENCES: Final = 2
ERROR_BODY_BYTES: Final = 1024 * 1024

PASS_ON: Final = frozenset({400, 405, 406, 409, 411, 413, 414, 415, 418, 422, 431, 451})
BUSY: Final = frozenset({429, 503})
MISCONFIGURED: Final = frozenset({401, 403, 404})

FAILURES: Final = ("deadline", "engine_error", "busy", "unavailable", "target_failed", "misconfigured")
"""Why a request failed, the first of these that any of its targets gave cause for; what tells the client most comes first."""

NOT_ASKED: Final = frozenset({"no_free_slot", "paused", "replica_away"})
"""Causes of attempts in which the target never saw the request: to lose a race for a slot is no attempt."""


class Result:
    """What came of a request: exactly one of `tail`, `body`, `refusal` and `failure` is set.

    Attributes:
        keep_bytes: somebody will look at the answer's text, so its bytes are kept until its end.
    """

    target: Target | None = None
    answer: Answer | None = None
    tail: Tail | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    refusal: EngineFault | None = None
    failure: str | None = None
    retry_after: str | None = None
    engine_errors: int = 0
    silences: int = 0
    keep_bytes: bool = False
    trace: RequestTrace | None = None

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.asked: list[tuple[Target, Attempt, Ticket | None]] = []
        self.failures: set[str] = set()

    @property
    def reached(self) -> list[Attempt]:
        """The attempts in which a target was really asked."""
        return [attempt for attempt in self.attempts if attempt.cause not in NOT_ASKED]

    @property
    def spent(self) -> bool:
        """Whether a further attempt would do more harm than good: the request costs too much, or breaks engines."""
        return self.engine_errors >= MAX_ENGINE_ERRORS or self.silences >= MAX_SILENCES

    @property
    def committed(self) -> bool:
        """Whether output was passed on to the client."""
        return self.answer is not None and self.answer.delivered_bytes > 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request."""

    phases: PhaseLimits = field(default_factory=PhaseLimits)
    whole_s: float = 900.0
    attempts: int = MAX_ATTEMPTS


async def run_attempts(
    request: ApiRequest,
    next_target: Callable[[], Awaitable[Target | None]],
    result: Result,
    *,
    began: float,
    limits: Limits,
    stream: ClientStream | None,
) -> None:
    """Fill in `result`, which holds every attempt made so far even when this is cancelled.

    Args:
        request: what was asked.
        next_target: the best one that is left, asked for only when it is needed; `None` when there is none.
        result: filled in as things happen.
        began: when the request arrived, monotonic seconds.
        limits: bounds of this request.
        stream: the client, for a streamed answer.
    """
    while (target := await next_target()) is not None:
        remaining = began + limits.whole_s - monotonic()
        if remaining <= 0:
            result.failure = "deadline"
            return
        attempt = _Try(request, target, result, began=began, limits=limits, remaining=remaining, stream=stream)
        if await attempt.run():
            return
        if len(result.reached) >= (1 if request.client_retry else limits.attempts) or result.spent:
            break
    result.failure = next((word for word in FAILURES if word in result.failures), "no_capacity")


class _Try:
    """One attempt."""

    def __init__(
        self,
        request: ApiRequest,
        target: Target,
        result: Result,
        *,
        began: float,
        limits: Limits,
        remaining: float,
        stream: ClientStream | None,
    ) -> None:
        self._request = request
        self._target = target
        self._result = result
        self._began = began
        self._limits = limits
        self._remaining = remaining
        self._stream = stream
        self._started = monotonic()
        self._status: int | None = None
        self._asked = (request.dialect.path, target.model)
        phases = limits.phases
        self._limit = Deadline(
            self._started + phases.accept_within_s(len(request.body)),
            every_s=min(phases.accept_s, phases.first_output_s, phases.between_events_s, remaining),
        )
        self._late = _not_accepted
        """What it means when a phase's limit passes now; that of the whole is the request's own."""

    async def run(self) -> bool:
        """Whether the request is settled; `False` asks for the next target."""
        request, result = self._request, self._result
        result.target = self._target
        result.answer = Answer(StreamClock(self._started), kept=bytearray() if result.keep_bytes else None)
        result.failure = None
        ticket = self._target.health.begin(self._started)
        if ticket is None:
            self._record("paused", None, ran=False, blamed=False)
            return False
        headers = request.forwarded
        if result.trace is not None:
            headers += result.trace.attempt(str(self._target.resource_class), self._target.name)
        job = JobSpec(
            job_id=f"{request.request_id}-{len(result.attempts) + 1}",
            model=self._target.model,
            path=request.dialect.path,
            body=request.body_for(self._target.model),
            deadline_s=self._remaining,
            headers=headers,
            query=request.query,
        )
        exchange: Exchange | None = None
        cause: str | None = "cancelled"
        ran, blamed = True, False
        if self._stream is not None:
            self._stream.on_commit = lambda: self._target.health.succeeded(ticket, self._asked)
        try:
            try:
                with self._limit:
                    exchange = await self._target.start(job)
                    settled = await self._exchange(exchange)
            except TimeoutError:
                late = _out_of_time if monotonic() >= self._limit.end else self._late
                raise late() from None
            cause = None if settled and result.refusal is None else f"status_{self._status}"
            blamed = not settled and self._status is not None and self._status >= 500 and self._status not in BUSY
        except TargetFault as fault:
            cause, ran, blamed = fault.cause, fault.ran, fault.blame
            settled = result.committed
            if settled:
                result.failure = "incomplete"
            elif cause == "deadline":
                result.failures.add("deadline")
            elif cause not in NOT_ASKED:
                result.failures.add("target_failed")
            result.silences += cause == "timeout"
        except EngineFault as fault:
            cause, blamed = "engine_error", True
            settled = result.committed
            result.engine_errors += 1
            if settled:
                result.failure = "incomplete"
            else:
                result.failures.add("engine_error")
            result.refusal = None
            del fault
        finally:
            try:
                if exchange is not None:
                    await exchange.close()
            finally:  # also when the client leaves during that: an attempt that was made is always told
                self._feed_breaker(ticket, self._record(cause, ticket, ran=ran, blamed=blamed))
        return settled

    def _feed_breaker(self, ticket: Ticket, attempt: Attempt) -> None:
        health, now = self._target.health, monotonic()
        if attempt.cause is None or attempt.status in PASS_ON:
            health.succeeded(ticket, self._asked)
        elif not attempt.blamed:
            health.dropped(ticket)
        elif not _is_engine_error(attempt):
            # One lost connection takes every job that ran on it, and is one fault.
            incident = f"{attempt.cause} at {now:.0f}" if attempt.cause in ("node_lost", "connection_lost") else None
            health.failed(ticket, now, attempt.cause, spread=random.random(), incident=incident)  # noqa: S311

    async def _exchange(self, exchange: Exchange) -> bool:
        request, result, limits = self._request, self._result, self._limits
        answer = result.answer
        assert answer is not None
        head_s = limits.phases.first_output_s
        if not request.stream:
            generates = request.dialect.streams
            head_s = limits.phases.whole_answer_s(request.max_output_tokens, generates=generates)
        now = monotonic()
        fair = self._remaining >= limits.phases.first_output_s  # others may have used up the request's time
        self._late = _silent if fair else _cut_short
        limit = self._limit
        limit.by = now + min(head_s, self._remaining)
        head = await exchange.head()
        self._late = _silent
        if self._stream is not None:  # one that keeps coming is no fault of the target
            limit.end = now + self._remaining
        self._status = head.status
        if head.status >= 400:
            limit.by = monotonic() + limits.phases.first_output_s
            body = await read_whole(exchange, limit, limits.phases, ERROR_BODY_BYTES)
            return self._error(engine_error(head.status, body), head.retry_after)
        result.content_type = head.content_type
        if self._stream is not None:
            result.tail = await relay_stream(
                exchange,
                request.dialect,
                answer,
                self._stream,
                limit,
                client_usage=request.client_usage,
                limits=limits.phases,
            )
        else:
            result.body = await relay_whole(exchange, request.dialect, answer, limit, limits.phases)
        return True

    def _error(self, error: EngineFault, retry_after: str | None) -> bool:
        result, status = self._result, error.status or 500
        if status in PASS_ON:
            result.refusal = error
            return True
        if status in BUSY:
            result.failures.add("busy" if status == 429 else "unavailable")
            result.retry_after = retry_after or result.retry_after
            seconds = retry_after or ""
            self._target.health.busy(monotonic(), float(seconds) if seconds.isdigit() else None)
        elif status in MISCONFIGURED:
            result.failures.add("misconfigured")
            self._target.health.refused_us(monotonic(), status, self._asked)
        else:
            result.engine_errors += 1
            result.failures.add("engine_error")
        return False

    def _record(self, cause: str | None, ticket: Ticket | None, *, ran: bool, blamed: bool) -> Attempt:
        result, now = self._result, monotonic()
        attempt = Attempt(
            resource_class=str(self._target.resource_class),
            target=self._target.name,
            model=self._target.model,
            started_ms=round((self._started - self._began) * 1000, 3),
            ended_ms=round((now - self._began) * 1000, 3),
            cause=cause,
            status=self._status,
            ran=ran,
            blamed=blamed,
        )
        if result.trace is not None:
            result.trace.attempted(attempt.to_dict())
        result.attempts.append(attempt)
        result.asked.append((self._target, attempt, ticket))
        return attempt


def _not_accepted() -> TargetFault:
    return TargetFault("not_accepted", "the target did not accept the job in time", ran=False)


def _silent() -> TargetFault:
    return TargetFault("timeout", "the engine was silent for too long", ran=True)


def _cut_short() -> TargetFault:
    return TargetFault("timeout", "the engine was silent for too long", ran=True, blame=False)


def _out_of_time() -> TargetFault:
    return TargetFault("deadline", "the request's deadline passed", ran=True, blame=False)


def settle(result: Result, *, streamed: bool, completed: bool, prompt: str = "", generated: bool = True) -> None:
    """Tell every target that was asked how its attempt counts; called once, when the outcome is known.

    A prompt that two engines failed on says more about the prompt than about the engines, so it hurts nobody.

    Args:
        result: of the request.
        streamed: whether the client asked for a stream.
        completed: whether it got a whole answer.
        prompt: what tells this request's content from others; sent again and again it counts once.
        generated: whether the answer was written token by token; what vectors and counts take says nothing of that.
    """
    poisoned = result.engine_errors >= MAX_ENGINE_ERRORS
    for target, attempt, ticket in result.asked:
        if ticket is not None and attempt.blamed and _is_engine_error(attempt):
            if poisoned:
                target.health.dropped(ticket)
            else:
                cause, spread = attempt.cause or "engine_error", random.random()  # noqa: S311
                target.health.failed(ticket, monotonic(), cause, spread=spread, incident=prompt)
        if attempt.cause is None and completed and result.answer is not None and target is result.target:
            answer, sample = result.answer, result.answer.sample
            first_ms = answer.clock.first_output_ms if streamed else None
            total_ms = attempt.ended_ms if generated else None
            target.outcome(
                "completed",
                tok_s=sample.tok_s,
                first_output_ms=first_ms,
                total_ms=total_ms,
                stream=sample,
            )
        elif not attempt.blamed or (poisoned and _is_engine_error(attempt)):
            continue
        else:
            result_word = "timed_out" if attempt.cause in ("timeout", "not_accepted") else "failed"
            target.outcome(result_word, tok_s=None, first_output_ms=None, total_ms=None)


def _is_engine_error(attempt: Attempt) -> bool:
    return attempt.cause == "engine_error" or (attempt.status is not None and attempt.status >= 500)
