"""The slot messages of every job, written and read without the general model where they have their usual form.

A model checks each field of each message; for messages of three known fields that costs more than the message. Whatever does
not look exactly as expected is read by the model, which also says what is wrong with it.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

import orjson

from brain_coord.classes.target import ReplyHead
from brain_node.contract.messages import Accepted, End, EndCause, Head, MessageError, decode

_CONTENT_TYPE_CHARS: Final = 256
_SHORT_CHARS: Final = 64
_CAUSES: Final = frozenset(get_args(EndCause))


@dataclass(frozen=True, slots=True)
class Taken:
    """The node has the whole body and runs the job."""


class Over(NamedTuple):
    """The job is over: well, or why not.

    Attributes:
        ok: whether it went well.
        cause: one of `EndCause`, or `None`: with any other word a node could pass for the coordinator itself, as with
            `no_free_slot`, which stands for a node that never saw the request.
    """

    ok: bool
    cause: str | None


Reply = Taken | ReplyHead | Over
"""What a node says of the job that it was given."""

TAKEN: Final = Taken()
DONE: Final = Over(ok=True, cause=None)

_KNOWN: Final[dict[tuple[str, str], Reply]] = {
    ('{"type":"accepted","id":"', '"}'): TAKEN,
    ('{"type":"end","id":"', '","ok":true}'): DONE,
    **{
        ('{"type":"head","id":"', f'","status":200,"content_type":"{content_type}"}}'): ReplyHead(200, content_type)
        for content_type in ("text/event-stream; charset=utf-8", "application/json")
    },
}
"""What nodes say of nearly every job, by the text before the job's id and behind it."""


def job_text(job_id: str, model: str, path: str, deadline_s: float, body_bytes: int) -> bytes:
    """A job of our own values, as its model would write it."""
    return orjson.dumps(
        {
            "type": "job",
            "id": job_id,
            "model": model,
            "path": path,
            "deadline_s": deadline_s,
            "body_bytes": body_bytes,
        }
    )


def read_answer(text: str, job_id: str | None) -> Reply | None:
    """The message in a text frame from a node, `None` for one that says nothing of a job.

    Args:
        text: of the frame.
        job_id: of the job that runs.

    Raises:
        MessageError: it is no message, breaks the protocol, or is about another job.
    """
    if job_id is not None:
        before, _, behind = text.partition(job_id)
        if (known := _KNOWN.get((before, behind))) is not None:
            return known
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        data = None
    reply: Reply | None = None
    if type(data) is dict and job_id is not None and data.get("id") == job_id:
        kind = data.get("type")
        if kind == "head":
            reply = _status(data)
        elif kind == "end":
            reply = _over(data)
        elif kind == "accepted":
            reply = TAKEN
    return reply or _modelled(text, job_id)


def _status(data: dict[str, Any]) -> ReplyHead | None:
    status, content_type = data.get("status"), data.get("content_type", "application/json")
    retry_after = data.get("retry_after")
    fits = type(content_type) is str and len(content_type) <= _CONTENT_TYPE_CHARS
    if type(status) is int and 100 <= status <= 599 and fits and _is_short(retry_after):
        return ReplyHead(status, content_type, retry_after)
    return None


def _over(data: dict[str, Any]) -> Over | None:
    ok, cause = data.get("ok"), data.get("cause")
    known = cause is None or (type(cause) is str and cause in _CAUSES)
    return Over(ok, cause) if type(ok) is bool and known else None


def _is_short(value: Any) -> bool:
    return value is None or (type(value) is str and len(value) <= _SHORT_CHARS)


def _modelled(text: str, job_id: str | None) -> Reply | None:
    """As the model reads it."""
    message = decode(text)
    if not isinstance(message, Accepted | Head | End):
        return None
    if message.id != job_id:
        raise MessageError("an answer to another job than the one that runs")
    if isinstance(message, Head):
        return ReplyHead(message.status, message.content_type, message.retry_after)
    if isinstance(message, End):
        return Over(message.ok, message.cause if message.cause in _CAUSES else None)
    return TAKEN
