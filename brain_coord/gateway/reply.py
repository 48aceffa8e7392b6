"""What the client gets at the end of a request: the held-back tail, a whole answer, an engine's refusal, or an error."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from time import monotonic
from typing import Final

import orjson

from brain_coord.gateway import sse
from brain_coord.gateway.dialects import CHAT
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.journal import Record
from brain_coord.gateway.json_members import with_end
from brain_coord.gateway.passage import Tail


def reply_lines(record: Record) -> bytes:
    """The headers that say how the request ran, as far as that is known when they leave; no value is a client's."""
    target = record.result.target
    mode = record.decision.class_decision.mode
    ran = _ran_lines(mode, None, None) if target is None else _ran_lines(mode, target.resource_class, target.node_id)
    return b"x-brain-receipt: %b\r\n%b" % (record.receipt_id.encode(), ran)


@lru_cache(maxsize=4096)
def _ran_lines(mode: str, resource_class: str | None, node_id: str | None) -> bytes:
    """The headers that many requests share."""
    said = {"x-brain-mode": mode, "x-brain-target": resource_class, "x-brain-node": node_id}
    return "".join(f"{name}: {value}\r\n" for name, value in said.items() if value is not None).encode()


def tail_bytes(record: Record, tail: Tail) -> bytes:
    """The end of a stream, with `brain` in its last event that carries JSON."""
    events, brain = list(tail.events), _brain(record)
    for at in range(len(events) - 1, -1, -1):
        if (spliced := sse.splice(events[at], brain)) is not None:
            events[at] = spliced
            break
    return record.request.dialect.tail(events, done=tail.done)


def whole_bytes(record: Record, body: bytes) -> bytes:
    """An answer that is not streamed, with `brain` as its last member."""
    return b"".join(with_end(body, _brain(record)))


def whole_pieces(record: Record, body: bytes) -> tuple[memoryview, bytes]:
    """The same in two pieces: what the engine wrote, which is not copied, and the end."""
    return with_end(body, _brain(record))


def _brain(record: Record) -> bytes:
    return b'"brain":' + orjson.dumps(record.brain(monotonic()))


def refusal_of(refusal: EngineFault) -> ApiError:
    """The engine's own 4xx, for a form whose shape it does not have."""
    code, kind = refusal.told("code"), refusal.told("type")
    return ApiError(
        status=refusal.status or 400,
        code="engine_refused" if code is None or code.isdigit() else code,
        message=str(refusal),
        type=kind or "invalid_request_error",
        param=refusal.told("param"),
    )


NOT_AGAIN: Final = frozenset({"engine_error", "deadline", "incomplete", "misconfigured"})
"""Failures that another try at once would only repeat, or that were costly. OpenAI's clients obey `x-should-retry`."""


def failure_of(record: Record) -> ApiError:
    """The error for a request that no target could answer."""
    error = _failure_of(record)
    in_vain = error.code == "no_capacity" and error.retry_after_s is None
    if in_vain or error.code in NOT_AGAIN or record.result.failure in NOT_AGAIN:
        error.headers.append((b"x-should-retry", b"false"))
    return error


def _failure_of(record: Record) -> ApiError:
    result = record.result
    code = result.failure or "target_failed"
    brain = {
        "route": record.decision.sentence(record.decision.passed_over()),
        "decision": record.decision.to_dict(),
        "attempts": [attempt.to_dict() for attempt in result.attempts],
        "request_id": record.request.request_id,
    }
    retry_after_s = seconds_of(result.retry_after)
    if result.committed:
        return fault("incomplete", "the answer broke off; what was sent stands, nothing else follows", brain=brain)
    asked = result.reached
    if asked and record.request.dialect is not CHAT and all(attempt.status == 404 for attempt in asked):
        sentence = f"nothing that serves {record.request.model} offers {record.request.dialect.path}"
        return fault("not_found", sentence, param="model", brain=brain)
    if retry_after_s is None and (asked or record.decision.may_change):
        retry_after_s = random.randint(3, 7)  # noqa: S311 — so that those refused together do not come back together
    if code == "busy":
        return fault(
            "rate_limited", "every target that serves this model is busy", retry_after_s=retry_after_s, brain=brain
        )
    if code == "deadline":
        return fault("deadline", "the request's deadline passed before an answer", brain=brain)
    if code == "engine_error":
        return fault("engine_error", "the engine failed with an error of its own", brain=brain)
    last = asked[-1] if asked else None
    if last is None or code in ("unavailable", "no_capacity"):
        sentence = record.decision.shortage()
        if record.decision.class_decision.selected is not None:  # by what is known of them they could, but they said no
            sentence = f"no target that serves {record.request.model} took the request (asked: {len(asked)})"
        return fault("no_capacity", sentence, retry_after_s=retry_after_s, brain=brain)
    if code == "misconfigured":
        sentence = "what serves this model refuses the coordinator; its operator has to mend the configuration"
        return fault("target_failed", sentence, brain=brain)
    if last.cause in ("timeout", "not_accepted"):
        return fault("deadline", "no target gave a first output in time", brain=brain)
    return fault(
        "target_failed",
        f"{len(asked)} target(s) failed before the first output (last: {last.cause})",
        retry_after_s=2,
        brain=brain,
    )


LONGEST_S: Final = 86_400
"""A client that obeys must not be sent away for years, nor told a number that it cannot read."""


def seconds_of(retry_after: str | None) -> int | None:
    """A target's Retry-After in seconds; it may be a date (RFC 9110, 10.2.3). What is longer than a day counts as one."""
    if not retry_after:
        return None
    if retry_after.isdecimal():
        return int(min(LONGEST_S, float(retry_after)))
    try:
        at = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    seconds = round((at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return min(LONGEST_S, max(1, seconds))
