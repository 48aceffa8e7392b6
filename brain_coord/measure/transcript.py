"""The text of a whole answer, read from its bytes: for the few answers whose words matter (canaries, comparisons, counting)."""

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_REASONING: Final = ("reasoning", "reasoning_content")


@dataclass(frozen=True, slots=True)
class Transcript:
    """What the first choice of an answer said.

    Attributes:
        text: the answer itself.
        thought: reasoning that the engine gave apart from it.
        finish: the finish reason, `None` if there was none.
    """

    text: str
    thought: str = ""
    finish: str | None = None

    @property
    def whole(self) -> str:
        """Everything that was written, in order."""
        return self.thought + self.text

    @property
    def answer(self) -> str:
        """The text without a leading block of thought, as models write it that think aloud."""
        _, mark, rest = self.text.rpartition("</think>")
        return (rest if mark else self.text).strip()


def read_transcript(data: bytes, *, streamed: bool) -> Transcript:
    """The text in the bytes of a chat or a completion; what cannot be read is left out."""
    parts = _events(data) if streamed else [data]
    text, thought, finish = [], [], None
    for part in parts:
        try:
            value = orjson.loads(part)
        except orjson.JSONDecodeError:
            continue
        for choice in _choices(value):
            body = choice.get("delta") or choice.get("message") or {}
            if isinstance(body, dict):
                text.append(_text(body.get("content")))
                thought += [_text(body.get(name)) for name in _REASONING]
                text += _calls(body)
            text.append(_text(choice.get("text")))
            if isinstance(reason := choice.get("finish_reason"), str):
                finish = reason
    return Transcript("".join(text), "".join(thought), finish)


def _events(data: bytes) -> list[bytes]:
    events = []
    for block in _EVENT_END.split(data):
        lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(block) if line.startswith(b"data:")]
        if lines:
            events.append(b"\n".join(lines))
    return events


def _choices(value: Any) -> list[dict[str, Any]]:
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list):
        return []
    return [choice for choice in choices if isinstance(choice, dict) and choice.get("index", 0) == 0]


def _calls(body: dict[str, Any]) -> list[str]:
    parts = []
    for call in body.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [_text(function.get("name")), _text(function.get("arguments"))]
    return parts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
