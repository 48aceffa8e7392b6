"""A chat request as tabs can answer it: what they cannot do is refused in OpenAI's shape, not silently left out."""

import secrets
from dataclasses import dataclass
from typing import Any, Final

import orjson

from brain_coord.browser.models import BrowserModel
from brain_coord.browser.sampling import TOP, Sampler
from brain_coord.browser.speech import Speech, SpeechError

UNSUPPORTED: Final = (
    "tools",
    "functions",
    "response_format",
    "structured_outputs",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_p",
    "min_tokens",
    "bad_words",
    "stop_token_ids",
    "use_beam_search",
    "best_of",
    "audio",
    "modalities",
    "web_search_options",
    "continue_final_message",
)
"""Members that would change the answer, and that tabs know nothing of."""

NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "response_format": ({"type": "text"},),
    "repetition_penalty": (1,),
    "best_of": (1,),
    "modalities": (["text"],),
}
"""Values that ask for nothing; 0, null, false and the empty ones are such for every member."""

MOST_STOPS: Final = 4


class ChatRefused(Exception):  # noqa: N818 — what happened, not what kind of class it is
    """The request is wrong, or asks for what tabs cannot do."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def body(self) -> bytes:
        """As an engine would say it."""
        error = {"message": str(self), "type": "invalid_request_error", "param": self.param, "code": None}
        return orjson.dumps({"error": error})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat."""

    prompt: list[int]
    sampler: Sampler
    most_tokens: int
    stops: tuple[str, ...]
    stream: bool
    usage: bool
    """Whether the stream ends with a chunk of usage."""
    ignore_eos: bool


def read_chat(body: bytes, model: BrowserModel, speech: Speech) -> ChatRequest:
    """The chat in a body.

    Raises:
        ChatRefused: with the member at fault.
    """
    data: dict[str, Any] = orjson.loads(body)
    for name in UNSUPPORTED:
        value = data.get(name)
        if value and value not in NEUTRAL.get(name, ()):
            raise ChatRefused(f"models in browser tabs do not support `{name}`", name)
    if data.get("n", 1) not in (None, 1):
        raise ChatRefused("models in browser tabs give one choice", "n")
    options = data.get("chat_template_kwargs")
    try:
        prompt = speech.prompt(_messages(data), options if isinstance(options, dict) else {})
    except SpeechError as error:
        raise ChatRefused(str(error), "messages") from None
    room = model.context - len(prompt)
    if room < 1 or not prompt:
        raise ChatRefused(f"the prompt has {len(prompt)} tokens; this model takes 1 to {model.context - 1}", "messages")
    limit = data.get("max_completion_tokens", data.get("max_tokens"))
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ChatRefused("the limit of tokens must be a whole number of at least 1", "max_tokens")
    seed = data.get("seed")
    stream = bool(data.get("stream"))
    return ChatRequest(
        prompt=prompt,
        sampler=Sampler(
            temperature=_number(data, "temperature", 1.0, 2.0),
            top_p=_number(data, "top_p", 1.0, 1.0),
            top_k=_top_k(data),
            seed=abs(seed) if type(seed) is int else secrets.randbits(63),
        ),
        most_tokens=min(room, room if limit is None else limit),
        stops=_stops(data),
        stream=stream,
        usage=stream and bool((data.get("stream_options") or {}).get("include_usage")),
        ignore_eos=data.get("ignore_eos") is True,
    )


def _messages(data: dict[str, Any]) -> list[dict[str, Any]]:
    messages = []
    for message in data["messages"]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ChatRefused("every message has a role", "messages")
        content = message.get("content")
        if isinstance(content, list):
            if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
                raise ChatRefused("models in browser tabs read text only", "messages")
            content = "".join(str(part.get("text", "")) for part in content)
        messages.append({**message, "content": content or ""})
    return messages


def _number(data: dict[str, Any], name: str, default: float, most: float) -> float:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ChatRefused(f"`{name}` must be between 0 and {most:g}", name)
    return float(value)


def _top_k(data: dict[str, Any]) -> int:
    """How many of the best tokens may be drawn; -1 and 0 mean all, of which a tab sends `TOP`."""
    value = data.get("top_k")
    if value is None:
        return TOP
    if type(value) is not int or value < -1:
        raise ChatRefused("`top_k` must be a whole number of at least -1", "top_k")
    return TOP if value < 1 else min(value, TOP)


def _stops(data: dict[str, Any]) -> tuple[str, ...]:
    given = data.get("stop")
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise ChatRefused(f"`stop` is a text, or a list of at most {MOST_STOPS}", "stop")
    return tuple(stops)
