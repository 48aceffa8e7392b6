"""Pass one answer from a target to the client: hold until real output, then byte for byte, and hold the end back.

The last events (finish, usage, end marker) are not sent here: they leave once the receipt is durable. So the relay
returns them, and a client that has seen the end of an answer can rely on its receipt.
"""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

import orjson

from brain_coord.classes.target import Exchange, TargetFault
from brain_coord.gateway import sse
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.dialects import Dialect, EventKind

EVENT_BYTES: Final = 8 * 1024 * 1024
"""Largest single event of a stream."""

PREFACE_BYTES: Final = 1024 * 1024
"""Most that is held before the first output."""

REPLY_BYTES: Final = 64 * 1024 * 1024
"""Largest answer that is not streamed."""

RESCHEDULE_S: Final = 0.5


class EngineFault(Exception):  # noqa: N818
    """The engine itself reported an error, in its status or in an event of its stream."""

    def __init__(self, message: str, *, status: int | None = None, body: bytes = b"", error: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.error = error


class Writer(Protocol):
    """Where the relay passes bytes on to."""

    async def write(self, data: bytes) -> None:
        """Send bytes of the answer."""


@dataclass(frozen=True, slots=True)
class PhaseLimits:
    """Deadlines of one attempt's phases, in seconds."""

    accept_s: float = 10.0
    first_output_s: float = 120.0
    between_events_s: float = 60.0


@dataclass(slots=True)
class Tail:
    """The end of a stream, held back: events to send, and whether the end marker came."""

    events: list[bytes] = field(default_factory=list)
    done: bool = False


async def relay_stream(
    exchange: Exchange, dialect: Dialect, answer: Answer, out: Writer, *, client_usage: bool, limits: PhaseLimits
) -> Tail:
    """Pass a stream on up to, and without, its end.

    Raises:
        TargetFault: the target broke off, or was silent for too long. `answer.clock.first_output` tells whether
            anything was committed.
        EngineFault: the engine sent an error event.
    """
    loop = asyncio.get_running_loop()
    splitter = sse.EventSplitter(EVENT_BYTES)
    preface: list[bytes] = []
    tail = Tail()
    committed = False
    clock = answer.clock
    try:
        async with asyncio.timeout(limits.first_output_s) as timer:
            armed = monotonic()
            while (chunk := await exchange.read()) is not None:
                now = monotonic()
                ready: list[bytes] = []
                for event in splitter.feed(chunk):
                    data = sse.data_of(event)
                    if data is None:  # comments, ids, retry hints: passed on once something is committed, never tokens
                        (ready if committed else preface).append(event)
                        continue
                    seen = dialect.read(data, committed=committed)
                    if seen.usage is not None:
                        answer.usage = seen.usage
                    kind = seen.kind
                    if kind is EventKind.OUTPUT:
                        clock.output(now, seen.text_bytes)
                        if tail.events:
                            ready += tail.events
                            tail.events = []
                        if not committed:
                            committed, ready, preface = True, preface + ready, []
                        ready.append(event)
                    elif kind is EventKind.FINISH:
                        if seen.text_bytes or not committed:
                            clock.output(now, seen.text_bytes)
                        if not committed:
                            committed, ready, preface = True, preface + ready, []
                        answer.finished = True
                        ready += tail.events
                        tail.events = [event]
                    elif kind is EventKind.USAGE:
                        if client_usage:
                            tail.events.append(event)
                    elif kind is EventKind.DONE:
                        tail.done = True
                        tail.events.append(event)
                    elif kind is EventKind.ERROR:
                        raise EngineFault("the engine reported an error", error=seen.error)
                    else:
                        (tail.events or (ready if committed else preface)).append(event)
                if committed and now - armed > RESCHEDULE_S:
                    armed = now
                    timer.reschedule(loop.time() + limits.between_events_s)
                if ready:
                    data = ready[0] if len(ready) == 1 else b"".join(ready)
                    answer.passed_on(data)
                    await out.write(data)
                elif not committed and sum(map(len, preface)) > PREFACE_BYTES:
                    raise TargetFault("protocol", "the engine sends events without output", ran=True)
    except TimeoutError:
        what = "between two events" if committed else "before the first output"
        raise TargetFault("timeout", f"the engine was silent for too long {what}", ran=True) from None
    except sse.EventTooLarge as error:
        raise TargetFault("protocol", str(error), ran=True) from None
    if not answer.finished:
        raise TargetFault("incomplete", "the stream ended without a finish reason", ran=True)
    return tail


async def read_whole(exchange: Exchange, limits: PhaseLimits, whole_s: float, limit_bytes: int = REPLY_BYTES) -> bytes:
    """The whole body of an answer.

    Raises:
        TargetFault: it broke off, was silent for too long, or is larger than the limit.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(whole_s) as timer:
            loop = asyncio.get_running_loop()
            while (chunk := await exchange.read()) is not None:
                size += len(chunk)
                if size > limit_bytes:
                    raise TargetFault("too_large", f"the answer is larger than {limit_bytes} bytes", ran=True)
                parts.append(chunk)
                timer.reschedule(loop.time() + limits.between_events_s)
    except TimeoutError:
        raise TargetFault("timeout", "the engine was silent for too long", ran=True) from None
    return b"".join(parts)


def engine_error(status: int, body: bytes) -> EngineFault:
    """An engine's error answer, with its message when it has the usual form."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    error = data.get("error", data) if isinstance(data, dict) else None
    message = error.get("message") if isinstance(error, dict) else error if isinstance(error, str) else None
    if message is None and isinstance(data, dict) and isinstance(data.get("message"), str):
        message = data["message"]
    return EngineFault(message or f"the engine answered with status {status}", status=status, body=body, error=error)
