"""OpenAI's chat completions, legacy completions and embeddings."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from brain_coord.gateway.dialects.base import EventKind, Seen

_OUTPUT_FIELDS: Final = ("content", "reasoning", "reasoning_content", "refusal")
_PREFACE: Final = Seen(EventKind.PREFACE)
_DONE: Final = Seen(EventKind.DONE)


def _text_length(value: Any) -> int:
    return len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else 0


def _delta_length(delta: dict[str, Any]) -> int:
    """Bytes of output in one chat delta; tool calls count by their names and arguments."""
    length = sum(_text_length(delta.get(name)) for name in _OUTPUT_FIELDS)
    for call in delta.get("tool_calls") or ():
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
            length += _text_length(function.get("name")) + _text_length(function.get("arguments"))
    if isinstance(audio := delta.get("audio"), dict):
        length += _text_length(audio.get("data")) + _text_length(audio.get("transcript"))
    return length


def _choice_length(choice: dict[str, Any]) -> int:
    body = choice.get("delta") or choice.get("message")
    return _delta_length(body) if isinstance(body, dict) else _text_length(choice.get("text"))


def _quick_text_length(data: bytes, marker: bytes) -> int | None:
    """Bytes of the one text field of a plain event without parsing it, `None` where it is not plain.

    Counts escapes as they stand, so it can only overestimate, and only by what escaping adds.
    """
    start = data.find(marker)
    if start < 0:
        return None
    start += len(marker)
    end = data.find(b'"', start)
    while end > 0 and data[end - 1] == 0x5C:  # an escaped quote; rare, so the exact scan is left to the parser
        return None
    return end - start


@dataclass(frozen=True, slots=True)
class OpenAI:
    """A form whose streams are chunks with `choices`."""

    path: str
    capability: str
    required: str
    marker: bytes

    def check(self, body: dict[str, Any]) -> tuple[str, str] | None:
        """The fields without which no engine could answer."""
        if self.required not in body:
            return self.required, f"`{self.required}` is missing"
        if self.required == "messages":
            messages = body["messages"]
            if not isinstance(messages, list) or not messages:
                return "messages", "`messages` must be a list with at least one message"
        return None

    def read(self, data: bytes, *, committed: bool) -> Seen:
        """Plain text events after the commit are not parsed; usage, finish, errors and everything unusual are."""
        if data == b"[DONE]":
            return _DONE
        if (
            committed
            and b'"finish_reason":"' not in data
            and b'"usage":{' not in data
            and b'"error"' not in data
            and b": " not in data[:12]
            and (length := _quick_text_length(data, self.marker)) is not None
        ):
            return Seen(EventKind.OUTPUT, length)
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            return Seen(EventKind.ERROR, error="the engine sent an event that is not JSON")
        return self._read_object(event)

    def _read_object(self, event: Any) -> Seen:
        if not isinstance(event, dict):
            return Seen(EventKind.ERROR, error="the engine sent an event that is not an object")
        if event.get("error") is not None:
            return Seen(EventKind.ERROR, error=event["error"])
        usage = event.get("usage") if isinstance(event.get("usage"), dict) else None
        choices = [choice for choice in event.get("choices") or () if isinstance(choice, dict)]
        if not choices:
            return Seen(EventKind.USAGE, usage=usage) if usage is not None else _PREFACE
        length = sum(_choice_length(choice) for choice in choices)
        if any(choice.get("finish_reason") is not None for choice in choices):
            return Seen(EventKind.FINISH, length, usage)
        if length == 0 and not any(_has_tool_call(choice) for choice in choices):
            return Seen(EventKind.PREFACE, usage=usage)
        return Seen(EventKind.OUTPUT, length, usage)

    def usage_of(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """`usage` of a whole answer."""
        usage = body.get("usage")
        return usage if isinstance(usage, dict) else None

    def text_bytes_of(self, body: dict[str, Any]) -> int:
        """Text of every choice."""
        return sum(_choice_length(choice) for choice in body.get("choices") or () if isinstance(choice, dict))


def _has_tool_call(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return isinstance(delta, dict) and bool(delta.get("tool_calls") or delta.get("function_call"))


CHAT: Final = OpenAI("/v1/chat/completions", "chat", "messages", b'"content":"')
COMPLETIONS: Final = OpenAI("/v1/completions", "completions", "prompt", b'"text":"')
EMBEDDINGS: Final = OpenAI("/v1/embeddings", "embeddings", "input", b'"embedding":"')
