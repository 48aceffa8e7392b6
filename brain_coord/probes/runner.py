"""Run one streamed request of our own on one node and measure it like any other.

A node must not be able to tell it from a customer's: the same path, the same message, an id and a deadline of the same shape.
"""

import random
import secrets
from dataclasses import dataclass
from time import monotonic

from brain_coord.classes.target import JobSpec, Target, TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.attempts import ERROR_BODY_BYTES, Limits
from brain_coord.gateway.deadline import Deadline
from brain_coord.gateway.dialects import CHAT, Dialect
from brain_coord.gateway.relay import PhaseLimits, engine_error, read_whole, relay_stream
from brain_coord.measure.speed import StreamClock


@dataclass(slots=True)
class Collected:
    """Keeps what a client would have received."""

    data: bytearray

    def write_now(self, data: bytes) -> bool:
        """Keep the bytes."""
        self.data += data
        return True

    async def write(self, data: bytes) -> None:
        """Keep the bytes."""
        self.data += data


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of a request of ours: the measured answer, and every byte of its stream."""

    answer: Answer
    data: bytes
    dispatched: float
    """When the job had been accepted at the latest, monotonic seconds."""


def job_of(path: str, model: str, body: bytes) -> JobSpec:
    """A job that looks like a customer's first attempt."""
    whole_s = Limits().whole_s
    return JobSpec(
        job_id=f"req-{secrets.token_hex(12)}-1",
        model=model,
        path=path,
        body=body,
        # Of a customer's deadline a few milliseconds have passed in the gateway.
        deadline_s=whole_s - random.uniform(0.0004, 0.006),  # noqa: S311 — a disguise, no secret
    )


async def run_probe(target: Target, body: bytes, *, timeout_s: float, dialect: Dialect = CHAT) -> Probe:
    """The answer to a streamed request.

    Raises:
        TargetFault: the node could not begin or broke off.
        EngineFault: the engine reported an error.
    """
    limits = PhaseLimits(accept_s=10.0, first_output_s=timeout_s, between_events_s=timeout_s)
    dispatched = monotonic()
    answer = Answer(StreamClock(dispatched))
    try:
        with Deadline(dispatched + timeout_s, every_s=timeout_s) as limit:
            limit.end = limit.by
            exchange = await target.start(job_of(dialect.path, target.model, body))
            try:
                head = await exchange.head()
                if head.status >= 400:
                    raise engine_error(
                        head.status, await read_whole(exchange, limit, limits, limit_bytes=ERROR_BODY_BYTES)
                    )
                out = Collected(bytearray())
                tail = await relay_stream(exchange, dialect, answer, out, limit, client_usage=False, limits=limits)
            finally:
                await exchange.close()
    except TimeoutError:
        raise TargetFault("timeout", f"no whole answer within {timeout_s:g} s", ran=True) from None
    return Probe(answer, bytes(out.data) + b"".join(tail.events), dispatched)
