"""Pass one answer from a target to the client: hold until real output, then byte for byte, and hold the end back.

The last events (finish, usage, end marker) are not sent here: they leave once the receipt is durable. So the relay
returns them, and a client that has seen the end of an answer can rely on its receipt.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

from brain_coord.classes.target import Exchange, TargetFault, Waiting
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.deadline import NEVER, Deadline
from brain_coord.gateway.dialects import Dialect
from brain_coord.gateway.dialects.base import json_object
from brain_coord.gateway.engine_fault import EngineFault, engine_error
from brain_coord.gateway.large_answer import read_large
from brain_coord.gateway.passage import Passage, Tail

__all__ = ["EngineFault", "PhaseLimits", "Tail", "engine_error", "read_whole", "relay_stream", "relay_whole"]

REPLY_BYTES: Final = 64 * 1024 * 1024
"""Largest answer that is not streamed."""

LARGE_BYTES: Final = 512 * 1024
"""A whole answer above this is not parsed as a whole, nor hashed on the event loop, nor copied."""

_READERS: Final = ThreadPoolExecutor(2, "large-answer")
"""So few that the event loop keeps its turn, whatever nodes send: each takes the interpreter from it for as long as it reads."""

UPLOAD_BYTES_PER_S: Final = 256 * 1024
"""The slowest line to a node on which a body still counts as arriving."""


ANSWER_TOKENS: Final = 1024
"""How long an answer without a limit is taken to be, for the time that it may take."""


class Writer(Protocol):
    """Where the relay passes bytes on to."""

    def write_now(self, data: bytes) -> bool:
        """Send bytes of the answer, unless that has to wait for anything; whether they were sent."""

    async def write(self, data: bytes) -> None:
        """Send bytes of the answer."""


@dataclass(frozen=True, slots=True)
class PhaseLimits:
    """Deadlines of one attempt's phases, in seconds."""

    accept_s: float = 10.0
    first_output_s: float = 120.0
    between_events_s: float = 60.0
    slowest_tok_s: float = 5.0

    def accept_within_s(self, body_bytes: int) -> float:
        """A large body takes its time on a home line, and the node accepts only when it has all of it."""
        return self.accept_s + body_bytes / UPLOAD_BYTES_PER_S

    def whole_answer_s(self, most_tokens: int | None, *, generates: bool) -> float:
        """How long an answer that is not streamed may take: engines say nothing of it, not even its status, until it is whole.

        Args:
            most_tokens: the limit that the client set, `None` without one.
            generates: whether the answer is written token by token.
        """
        tokens = (ANSWER_TOKENS if most_tokens is None else most_tokens) if generates else 0
        return self.first_output_s + tokens / self.slowest_tok_s


async def relay_stream(
    exchange: Exchange,
    dialect: Dialect,
    answer: Answer,
    out: Writer,
    limit: Deadline,
    *,
    client_usage: bool,
    limits: PhaseLimits,
) -> Tail:
    """Pass a stream on up to, and without, its end.

    Args:
        exchange: with the target.
        dialect: of the route.
        answer: gets the times and counts; its `delivered_bytes` tell whether anything was committed.
        out: the client.
        limit: which the caller has entered, at the time of the first output; moved as the engine speaks, so that its silence
            ends the attempt.
        client_usage: whether the client asked for the usage.
        limits: of the phases.

    Raises:
        TargetFault: the target broke off before the end marker.
        EngineFault: the engine sent an error event.
    """
    passage = Passage(dialect, answer, client_usage=client_usage, between_s=limits.between_events_s)

    def take(chunk: bytes) -> Waiting:
        now = monotonic()
        try:
            ready = passage.feed(chunk, now)
        except (EngineFault, TargetFault) as fault:
            if ready := passage.out():
                return write_last(ready, fault)
            raise
        if ready:
            if not out.write_now(ready):
                return write(ready)
            answer.passed_on(ready)  # after it has left: the client need not wait for the hash
        if (silence_s := passage.silence_s) is not None:
            limit.by = now + silence_s
        return None

    async def write(ready: bytes) -> None:
        limit.by = NEVER  # a slow client's time is not the engine's
        await out.write(ready)
        answer.passed_on(ready)
        limit.by = monotonic() + (passage.silence_s or limits.between_events_s)

    async def write_last(ready: bytes, fault: EngineFault | TargetFault) -> None:
        await write(ready)
        raise fault

    try:
        await exchange.pass_on(take)
    except TargetFault:
        if not passage.whole:
            raise
    except asyncio.CancelledError:
        if not (passage.whole and limit.forgives()):
            raise
    ready, tail = passage.end(monotonic())
    if ready:
        await write(ready)
    return tail


async def relay_whole(
    exchange: Exchange, dialect: Dialect, answer: Answer, limit: Deadline, limits: PhaseLimits
) -> bytes:
    """A whole answer as it came; its counts are in `answer` then.

    Args:
        exchange: with the target.
        dialect: of the route.
        answer: gets the counts.
        limit: as for `read_whole`.
        limits: of the phases.

    Raises:
        TargetFault: it broke off, is too large, or is no JSON object.
        EngineFault: the engine reported an error under a good status.
    """
    body = await read_whole(exchange, limit, limits)
    came = monotonic()
    if len(body) <= LARGE_BYTES:
        data = json_object(body)
        text_bytes = 0 if data is None else dialect.text_bytes_of(data)
    else:
        limit.by = NEVER  # our time is not the engine's
        data, text_bytes = await asyncio.get_running_loop().run_in_executor(_READERS, _read_large, body, dialect)
    if data is None:
        raise TargetFault("protocol", "the answer is not a JSON object", ran=True)
    if data.get("error") is not None:
        raise EngineFault("the engine reported an error", error=data["error"])
    answer.usage = dialect.usage_of(data) or answer.usage
    answer.clock.output(came, text_bytes)
    answer.finished = True
    return body


def _read_large(body: bytes, dialect: Dialect) -> tuple[dict[str, Any] | None, int]:
    try:
        return read_large(body, dialect)
    except ValueError:
        return None, 0


async def read_whole(exchange: Exchange, limit: Deadline, limits: PhaseLimits, limit_bytes: int = REPLY_BYTES) -> bytes:
    """The whole body of an answer.

    Args:
        exchange: with the target.
        limit: which the caller has entered, at the time when the body has to be whole; silence between two pieces ends it
            sooner.
        limits: of the phases.
        limit_bytes: the most that it may be.

    Raises:
        TargetFault: it broke off, or is larger than the limit.
    """
    parts: list[bytes] = []
    size = 0
    by = limit.by

    def take(chunk: bytes) -> None:
        nonlocal size
        size += len(chunk)
        if size > limit_bytes:
            raise TargetFault("too_large", f"the answer is larger than {limit_bytes} bytes", ran=True)
        parts.append(chunk)
        limit.by = min(by, monotonic() + limits.between_events_s)

    await exchange.pass_on(take)
    return b"".join(parts)
