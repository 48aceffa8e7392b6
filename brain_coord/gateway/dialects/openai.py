"""OpenAI's forms with `choices`, chat and legacy completions; and embeddings, which share their errors."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from brain_coord.gateway import sse
from brain_coord.gateway.dialects.base import Forwards, count, json_object, text_length
from brain_coord.gateway.dialects.forms import Forms
from brain_coord.gateway.dialects.seen import DONE, FINISH, NOT_JSON, QUIET, EventKind, Seen, Usage
from brain_coord.gateway.errors import ApiError, fault

_PLAIN_TEXT: Final = re.compile(rb'"(?:delta"\s*:\s*\{\s*"content|text)"\s*:\s*"')
_START: Final = re.compile(
    rb"data: \{(?:"
    rb'"(?:id|object|system_fingerprint|service_tier|provider)": ?(?:"[^"\\\x00-\x1f\x80-\xff]{0,256}"|null), ?|'
    rb'"created": ?(?:0|[1-9][0-9]{0,14}), ?|'
    rb'"model": ?("[^"\\\x00-\x1f\x80-\xff]{0,256}"), ?'
    rb'){1,8}(?="choices":)'
)
"""Members that tell nothing of an answer: few and short, so that a start is found in no time whatever a node sends."""

_NUMBER: Final = rb"(?:0|[1-9][0-9]{0,7})"
"""Any that is below `COUNTED`."""
_COUNTS: Final = re.compile(
    rb'"choices": ?\[\], ?"usage": ?\{"prompt_tokens": ?(%b), ?"total_tokens": ?%b, ?"completion_tokens": ?(%b)\}'
    rb'(?:, ?"system_fingerprint": ?(?:"[^"\\\x00-\x1f\x80-\xff]{0,256}"|null))?\}\n\n' % (_NUMBER, _NUMBER, _NUMBER)
)
"""Every stream has such an event, and in no two it is the same."""

_OUTPUT_FIELDS: Final = ("content", "reasoning", "reasoning_content", "refusal")
_CALL_FIELDS: Final = ("name", "arguments", "input")
_PLAIN_FIELDS: Final = {"role", "content"}


def _delta_length(delta: dict[str, Any]) -> int:
    """Bytes of output in one chat delta; tool calls count by their names and what is given to them."""
    length = 0
    for name in _OUTPUT_FIELDS:
        if (text := delta.get(name)) is not None:
            length += text_length(text)
    for call in _calls(delta):
        for part in call.values() if isinstance(call, dict) else ():  # a function, or a tool of another kind
            if isinstance(part, dict):
                length += sum(text_length(part.get(name)) for name in _CALL_FIELDS)
    if isinstance(audio := delta.get("audio"), dict):
        length += text_length(audio.get("data")) + text_length(audio.get("transcript"))
    return length


def _calls(delta: dict[str, Any]) -> list[Any]:
    calls, old = delta.get("tool_calls"), delta.get("function_call")
    found = calls if isinstance(calls, list) else []
    return [*found, {"function": old}] if old else found


def _choice_length(choice: dict[str, Any]) -> int:
    body = choice.get("delta") or choice.get("message")
    return _delta_length(body) if isinstance(body, dict) else text_length(choice.get("text"))


def _vector_length(item: Any) -> int:
    vector = item.get("embedding") if isinstance(item, dict) else None
    return len(vector) if isinstance(vector, str | list) else 0


def _choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    choices = body.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    return Usage(count(value.get("prompt_tokens")), count(value.get("completion_tokens")))


def check_messages(body: dict[str, Any]) -> None:
    """Chats need at least one message."""
    if "messages" not in body:
        raise fault("missing_field", "`messages` is missing", param="messages")
    if not isinstance(body["messages"], list) or not body["messages"]:
        raise fault("missing_field", "`messages` must be a list with at least one message", param="messages")


def _check_member(name: str, body: dict[str, Any]) -> None:
    """The one without which no engine could answer."""
    if name not in body:
        raise fault("missing_field", f"`{name}` is missing", param=name)


@dataclass(frozen=True, slots=True)
class OpenAI:
    """A form with OpenAI's errors.

    Attributes:
        about: what the route does.
        check: raises `ApiError` for what no engine could answer.
        forms: of its events; those without `choices` have none.
    """

    path: str
    about: str
    check: Callable[[dict[str, Any]], None] = field(compare=False, repr=False)
    streams: bool = True
    asks_usage: bool = True
    id_lines: bytes = b"x-request-id: %(id)b\r\n"
    forwards: Forwards = ()
    forms: Forms | None = field(default_factory=lambda: Forms(_START, _PLAIN_TEXT, _COUNTS), compare=False, repr=False)

    def read(self, data: bytes) -> Seen:
        """A chunk, or the end marker."""
        if data.startswith(b"[DONE]"):
            return DONE
        event = json_object(data)
        return NOT_JSON if event is None else _read_event(event)

    def usage_of(self, body: dict[str, Any]) -> Usage | None:
        """`usage` of a whole answer."""
        return _usage(body.get("usage"))

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """Text of every choice; of embeddings the vectors, so that an answer without any counts as empty."""
        vectors = body.get("data")
        return sum(map(_choice_length, _choices(body))) + (
            sum(map(_vector_length, vectors)) if isinstance(vectors, list) else 0
        )

    def tail(self, events: list[bytes], *, done: bool) -> bytes:
        """Ends with `[DONE]`."""
        return b"".join(events) if done else b"".join([*events, sse.event(b"[DONE]")])

    def error_body(self, error: ApiError, request_id: str) -> bytes:
        """OpenAI's shape."""
        del request_id
        return error.encode()

    def error_event(self, error: ApiError, request_id: str) -> bytes:
        """A data event with `error`, as OpenAI's clients look for it."""
        return sse.event(self.error_body(error, request_id))

    def is_error(self, body: dict[str, Any]) -> bool:
        """Whether it is `{"error": {message, type, param, code}}`."""
        error = body.get("error")
        return isinstance(error, dict) and isinstance(error.get("message"), str) and error.keys() >= _ERROR_MEMBERS


_ERROR_MEMBERS: Final = {"message", "type", "param", "code"}


def _read_event(event: dict[str, Any]) -> Seen:
    get = event.get
    if get("error") is not None:
        return Seen(EventKind.ERROR, error=event["error"])
    told, choices = get("usage"), get("choices")
    usage = None if told is None else _usage(told)
    if type(choices) is list and usage is None and len(choices) == 1 and (seen := _plain(choices[0])) is not None:
        return seen
    if not choices and usage is not None:
        return Seen(EventKind.USAGE, usage=usage)
    choices = _choices(event)
    if not choices:
        return QUIET if usage is None else Seen(EventKind.USAGE, usage=usage)
    length = sum(map(_choice_length, choices))
    if any(choice.get("finish_reason") for choice in choices):
        return Seen(EventKind.FINISH, length, usage)
    if length == 0 and not any(_has_tool_call(choice) for choice in choices):
        return Seen(EventKind.QUIET, usage=usage)
    return Seen(EventKind.OUTPUT, length, usage)


def _plain(choice: Any) -> Seen | None:
    """One choice of a chat that holds a role, a text or an end, as nearly all do; else `None`. A short cut, nothing more."""
    if type(choice) is not dict:
        return None
    get = choice.get
    delta = get("delta")
    if type(delta) is not dict or not delta.keys() <= _PLAIN_FIELDS or "text" in choice or "message" in choice:
        return None
    text = delta.get("content")
    length = text_length(text) if text else 0
    if get("finish_reason"):  # some servers write "" as long as there is none
        return FINISH if not length else Seen(EventKind.FINISH, length)
    return Seen(EventKind.OUTPUT, length) if length else QUIET


def _has_tool_call(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return isinstance(delta, dict) and bool(_calls(delta))


CHAT: Final = OpenAI("/v1/chat/completions", "A chat's next message: one request, streamed or whole.", check_messages)
COMPLETIONS: Final = OpenAI(
    "/v1/completions", "The text after a prompt: one request, streamed or whole.", partial(_check_member, "prompt")
)
EMBEDDINGS: Final = OpenAI(
    "/v1/embeddings",
    "Vectors of texts, where something serves such a model.",
    partial(_check_member, "input"),
    streams=False,
    asks_usage=False,
    forms=None,
)
