"""The four slot messages of every job, written and read without the general model where they have their usual form.

A model checks each field of each message; for messages of three known fields that costs more than the message. Whatever does
not look exactly as expected is read by the model, which also says what is wrong with it.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel

from brain_node.contract.messages import Accepted, End, Head, Job, Message, decode

M = TypeVar("M", bound=BaseModel)

_CONTENT_TYPE_CHARS: Final = 256
_SHORT_CHARS: Final = 64


def job_text(job: Job) -> str:
    """`job` as the model would write it."""
    return orjson.dumps(
        {
            "type": "job",
            "id": job.id,
            "model": job.model,
            "path": job.path,
            "deadline_s": job.deadline_s,
            "body_bytes": job.body_bytes,
        }
    ).decode()


@dataclass(frozen=True, slots=True)
class Usual:
    """The two answers of a job that hardly ever differ: as a node writes them, and as they are read.

    Attributes:
        accepted: the text by which it takes the job.
        ended: the text by which it says that the job ended well.
    """

    accepted: str
    ended: str
    taken: Accepted
    done: End

    @classmethod
    def of(cls, job_id: str) -> "Usual":
        """Those of one job."""
        taken = _made(Accepted, {"id": job_id})
        done = _made(End, {"id": job_id, "ok": True, "cause": None})
        return cls(f'{{"type":"accepted","id":"{job_id}"}}', f'{{"type":"end","id":"{job_id}","ok":true}}', taken, done)


def read_answer(text: str, job_id: str | None) -> Message | None:
    """The message in a text frame from a node, `None` for a type that this version does not know.

    Args:
        text: of the frame.
        job_id: of the job that runs; messages about another one are left to the model.

    Raises:
        MessageError: it is no message, or breaks the protocol.
    """
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return decode(text)
    if type(data) is not dict or job_id is None or data.get("id") != job_id:
        return decode(text)
    kind = data.get("type")
    if kind == "accepted":
        return _made(Accepted, {"id": job_id})
    if kind == "end":
        return _end(data, job_id) or decode(text)
    if kind == "head":
        return _head(data, job_id) or decode(text)
    return decode(text)


def made_job(job_id: str, model: str, path: str, deadline_s: float, body_bytes: int) -> Job:
    """A job of our own values."""
    return _made(
        Job,
        {
            "id": job_id,
            "model": model,
            "path": path,
            "deadline_s": deadline_s,
            "body_bytes": body_bytes,
        },
    )


def _made(kind: type[M], values: dict[str, Any]) -> M:
    """As `model_construct`, for values that are complete and checked; that goes through the fields one by one."""
    message = kind.__new__(kind)
    object.__setattr__(message, "__dict__", values)
    object.__setattr__(message, "__pydantic_fields_set__", set(values))
    object.__setattr__(message, "__pydantic_extra__", None)
    object.__setattr__(message, "__pydantic_private__", None)
    return message


def _end(data: dict[str, Any], job_id: str) -> End | None:
    ok, cause = data.get("ok"), data.get("cause")
    if type(ok) is bool and _is_short(cause, _SHORT_CHARS):
        return _made(End, {"id": job_id, "ok": ok, "cause": cause})
    return None


def _head(data: dict[str, Any], job_id: str) -> Head | None:
    status, content_type = data.get("status"), data.get("content_type", "application/json")
    retry_after = data.get("retry_after")
    fits = type(content_type) is str and len(content_type) <= _CONTENT_TYPE_CHARS
    if type(status) is int and 100 <= status <= 599 and fits and _is_short(retry_after, _SHORT_CHARS):
        return _made(
            Head,
            {"id": job_id, "status": status, "content_type": content_type, "retry_after": retry_after},
        )
    return None


def _is_short(value: Any, chars: int) -> bool:
    return value is None or (type(value) is str and len(value) <= chars)
