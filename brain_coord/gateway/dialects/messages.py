"""Anthropic's Messages and their token count: typed events with a name, errors in a shape of their own."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from brain_coord.gateway import sse
from brain_coord.gateway.dialects.base import Forwards, count, json_object, text_length
from brain_coord.gateway.dialects.openai import check_messages
from brain_coord.gateway.dialects.seen import DONE, NOT_JSON, QUIET, EventKind, Seen, Usage
from brain_coord.gateway.errors import ApiError

VERSION: Final = "2023-06-01"
"""What Anthropic's API takes a request for that names no version; servers of this form insist on one."""

_ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_FORWARDS: Final = (("anthropic-version", VERSION), ("anthropic-beta", None))
_TEXTS: Final = ("text", "thinking", "partial_json", "name", "data")


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    return Usage(count(value.get("input_tokens")), count(value.get("output_tokens")))


def _length(block: Any) -> int:
    """Bytes of output in a block or a delta."""
    if not isinstance(block, dict):
        return 0
    length = sum(text_length(block.get(name)) for name in _TEXTS)
    called = block.get("input")
    return length + _written_length(called) if isinstance(called, dict) and called else length


def _written_length(called: dict[str, Any]) -> int:
    try:
        return len(orjson.dumps(called))
    except TypeError:  # deeper than anything that a tool takes, or with half a character
        return 0


@dataclass(frozen=True, slots=True)
class Messages:
    """`/v1/messages`."""

    path: str = "/v1/messages"
    about: str = "Anthropic's messages: one request, streamed or whole."
    streams: bool = True
    asks_usage: bool = False
    id_lines: bytes = b"x-request-id: %(id)b\r\nrequest-id: %(id)b\r\n"
    forwards: Forwards = _FORWARDS

    @property
    def forms(self) -> None:
        """Its events differ in more than their text."""

    def check(self, body: dict[str, Any]) -> None:
        """At least one message."""
        check_messages(body)

    def read(self, data: bytes) -> Seen:
        """Deltas are output, and so is the start of a tool call; the stop reason ends the answer."""
        event = json_object(data)
        if event is None:
            return NOT_JSON
        kind = event.get("type")
        if kind == "error" or event.get("error") is not None:
            return Seen(EventKind.ERROR, error=event.get("error") or event)
        if kind == "content_block_delta":
            length = _length(event.get("delta"))
            return Seen(EventKind.OUTPUT, length) if length else QUIET
        if kind == "content_block_start":
            length = _length(event.get("content_block"))
            return Seen(EventKind.OUTPUT, length) if length else QUIET
        if kind == "message_start":
            message = event.get("message")
            return Seen(EventKind.QUIET, usage=_usage(message.get("usage")) if isinstance(message, dict) else None)
        if kind == "message_delta":
            delta = event.get("delta")
            ended = isinstance(delta, dict) and delta.get("stop_reason") is not None
            return Seen(EventKind.FINISH if ended else EventKind.QUIET, usage=_usage(event.get("usage")))
        return DONE if kind == "message_stop" else QUIET

    def usage_of(self, body: dict[str, Any]) -> Usage | None:
        """`usage` of a whole answer."""
        return _usage(body.get("usage"))

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """Output of every block."""
        content = body.get("content")
        return sum(map(_length, content)) if isinstance(content, list) else 0

    def tail(self, events: list[bytes], *, done: bool) -> bytes:
        """Ends with `message_stop`."""
        stop = [] if done else [sse.event(b'{"type":"message_stop"}', "message_stop")]
        return b"".join([*events, *stop])

    def error_body(self, error: ApiError, request_id: str) -> bytes:
        """Anthropic's shape, with our code beside its type."""
        kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
        inner = {"type": kind, "message": error.message, "param": error.param, "code": error.code}
        return orjson.dumps({"type": "error", **error.body(), "error": inner, "request_id": request_id})

    def error_event(self, error: ApiError, request_id: str) -> bytes:
        """The form's own `error` event."""
        return sse.event(self.error_body(error, request_id), "error")

    def is_error(self, body: dict[str, Any]) -> bool:
        """Whether it is `{"type": "error", "error": {type, message}}`."""
        error = body.get("error")
        return body.get("type") == "error" and isinstance(error, dict) and isinstance(error.get("message"), str)


@dataclass(frozen=True, slots=True)
class TokenCounting(Messages):
    """`/v1/messages/count_tokens`: what the engine's own tokenizer makes of a request. Nothing is generated."""

    path: str = "/v1/messages/count_tokens"
    about: str = "How many tokens a request for messages would have, by the tokenizer of what would serve it."
    streams: bool = False

    def usage_of(self, body: dict[str, Any]) -> Usage | None:
        """To count costs nothing."""
        del body
        return None

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """The number is the answer; one without it counts as empty."""
        return len(str(number)) if (number := count(body.get("input_tokens"))) is not None else 0


MESSAGES: Final = Messages()
COUNT_TOKENS: Final = TokenCounting()
