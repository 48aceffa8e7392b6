"""OpenAI's Responses: typed events, no end marker, and no state kept for a later request."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from brain_coord.gateway import sse
from brain_coord.gateway.dialects.base import Forwards, count, json_object, text_length
from brain_coord.gateway.dialects.openai import CHAT
from brain_coord.gateway.dialects.seen import DONE, NOT_JSON, QUIET, EventKind, Seen, Usage
from brain_coord.gateway.errors import ApiError, fault

_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_FAILS: Final = frozenset({"error", "response.failed", "response.cancelled"})


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    return Usage(count(value.get("input_tokens")), count(value.get("output_tokens")))


def _item_length(item: Any) -> int:
    """Bytes of output in one item: its texts, its reasoning, or the name and arguments of a call."""
    if not isinstance(item, dict):
        return 0
    length = text_length(item.get("name")) + text_length(item.get("arguments")) + text_length(item.get("input"))
    for parts in (item.get("content"), item.get("summary")):
        if isinstance(parts, list):
            length += sum(text_length(part.get("text")) for part in parts if isinstance(part, dict))
    return length


@dataclass(frozen=True, slots=True)
class Responses:
    """`/v1/responses`."""

    path: str = "/v1/responses"
    about: str = "OpenAI's responses: one request, streamed or whole; none is stored."
    streams: bool = True
    asks_usage: bool = False
    id_lines: bytes = CHAT.id_lines
    forwards: Forwards = ()

    @property
    def forms(self) -> None:
        """Its events differ in more than their text."""

    def check(self, body: dict[str, Any]) -> None:
        """Every request stands alone: its answer may come from another engine than the one before."""
        for name in ("previous_response_id", "conversation"):
            if body.get(name) is not None:
                raise fault(
                    "unsupported_state",
                    f"`{name}` needs a stored response, and none is kept here; send the whole conversation in `input`",
                    param=name,
                )
        for name in ("store", "background"):
            if body.get(name) is True:
                raise fault(
                    "unsupported_state", f"`{name}` is not offered: no response is kept here; leave it out", param=name
                )
        if "input" not in body and "prompt" not in body:
            raise fault("missing_field", "`input` is missing", param="input")

    def read(self, data: bytes) -> Seen:
        """Every `….delta` is output; the rest frames it."""
        if data.startswith(b"[DONE]"):
            return DONE
        event = json_object(data)
        if event is None:
            return NOT_JSON
        kind = event.get("type")
        if kind in _FAILS or event.get("error") is not None:
            return Seen(EventKind.ERROR, error=event.get("error") or event)
        if not isinstance(kind, str):
            return QUIET
        if kind.endswith(".delta"):
            length = text_length(event.get("delta"))
            return Seen(EventKind.OUTPUT, length) if length else QUIET
        if kind in _ENDS:
            response = event.get("response")
            return Seen(EventKind.END, usage=_usage(response.get("usage")) if isinstance(response, dict) else None)
        return QUIET

    def usage_of(self, body: dict[str, Any]) -> Usage | None:
        """`usage` of a whole answer."""
        return _usage(body.get("usage"))

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """Output of every item."""
        output = body.get("output")
        return sum(map(_item_length, output)) if isinstance(output, list) else 0

    def tail(self, events: list[bytes], *, done: bool) -> bytes:
        """The form has no end marker."""
        del done
        return b"".join(events)

    def error_body(self, error: ApiError, request_id: str) -> bytes:
        """OpenAI's shape."""
        return CHAT.error_body(error, request_id)

    def error_event(self, error: ApiError, request_id: str) -> bytes:
        """The form's own `error` event, with `error` beside it, by which OpenAI's clients raise."""
        del request_id
        flat = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return sse.event(orjson.dumps({**flat, **error.body()}), "error")

    def is_error(self, body: dict[str, Any]) -> bool:
        """OpenAI's shape."""
        return CHAT.is_error(body)


RESPONSES: Final = Responses()
