"""Run one streamed request of our own on one node and measure it like any other."""

import asyncio
import secrets
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson

from brain_coord.classes.target import JobSpec, Target, TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.attempts import ERROR_BODY_BYTES
from brain_coord.gateway.dialects import CHAT
from brain_coord.gateway.relay import PhaseLimits, engine_error, read_whole, relay_stream
from brain_coord.measure.speed import StreamClock


@dataclass(slots=True)
class Collected:
    """Keeps what a client would have received."""

    data: bytearray

    async def write(self, data: bytes) -> None:
        """Keep the bytes."""
        self.data += data


async def run_probe(target: Target, body: dict[str, Any], *, timeout_s: float) -> tuple[Answer, bytes]:
    """The answer, measured, and the bytes of its stream.

    Raises:
        TargetFault: the node could not begin or broke off.
        EngineFault: the engine reported an error.
    """
    limits = PhaseLimits(accept_s=10.0, first_output_s=timeout_s, between_events_s=timeout_s)
    answer = Answer(StreamClock(monotonic()))
    job = JobSpec("p-" + secrets.token_hex(8), target.model, CHAT.path, orjson.dumps(body), timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            exchange = await target.start(job)
            try:
                answer.clock.dispatched = monotonic()
                head = await exchange.head()
                if head.status >= 400:
                    raise engine_error(
                        head.status, await read_whole(exchange, limits, timeout_s, limit_bytes=ERROR_BODY_BYTES)
                    )
                out = Collected(bytearray())
                await relay_stream(exchange, CHAT, answer, out, client_usage=False, limits=limits)
            finally:
                await exchange.close()
    except TimeoutError:
        raise TargetFault("timeout", f"no whole answer within {timeout_s:g} s", ran=True) from None
    return answer, bytes(out.data)
