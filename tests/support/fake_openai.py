"""An OpenAI-compatible upstream on loopback: answers like a healthy one, or as its script says, and remembers all calls."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from tests.support.fake_engine import FakeEngine, Script, stream

WORDS = ("far ", "away ", "text ")


def _chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"id": "chatcmpl-9", "object": "chat.completion.chunk", "model": model, "choices": [choice]})


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def usage(completion: int, prompt: int = 7) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def chat(words: Sequence[str] = WORDS, *, pause_s: float = 0.0) -> Script:
    """A healthy answer, streamed or not, under the model name that was asked for; embeddings too."""

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        asked = json.loads(body)
        model = asked["model"]
        if request.path.endswith("/embeddings"):
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            return web.json_response({"object": "list", "model": model, "data": data, "usage": usage(0)})
        if not asked.get("stream"):
            message = {"role": "assistant", "content": "".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            kind = {"id": "chatcmpl-9", "object": "chat.completion", "model": model}
            return web.json_response({**kind, "choices": [choice], "usage": usage(len(words))})
        pieces = [_chunk(model, {"role": "assistant", "content": ""})]
        pieces += [_chunk(model, {"content": word}) for word in words]
        pieces.append(_chunk(model, {}, "stop"))
        if (asked.get("stream_options") or {}).get("include_usage"):
            kind = {"id": "chatcmpl-9", "object": "chat.completion.chunk", "model": model}
            pieces.append(_event({**kind, "choices": [], "usage": usage(len(words))}))
        pieces.append(b"data: [DONE]\n\n")
        return await stream(request, pieces, pause_s)

    return answer


def status(code: int, message: str = "no", **headers: str) -> Script:
    """An error of the upstream's own; header names with underscores for dashes."""

    async def answer(_: web.Request, __: bytes) -> web.StreamResponse:
        error = {"message": message, "type": "error", "param": None, "code": None}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response({"error": error}, status=code, headers=named)

    return answer


def cut(words: int = 0, when: asyncio.Event | None = None) -> Script:
    """Breaks the connection, after some words of a stream and not before `when`."""

    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        model = json.loads(body)["model"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if words:
            await response.prepare(request)
            for number in range(words):
                await response.write(_chunk(model, {"content": f"w{number} "}))
        if when is not None:
            await when.wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


async def silence(_: web.Request, __: bytes) -> web.StreamResponse:
    """Takes the request and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


class FakeOpenAi(FakeEngine):
    """Names and a key of its own. `script` answers every call; change it at any time."""

    def __init__(self, *models: str, script: Script | None = None, api_key: str | None = None, port: int = 0) -> None:
        super().__init__(script or chat(), list(models or ("far-model",)), api_key, port)

    @property
    def calls(self) -> int:
        return len(self.requests)

    def toml(self, kind: str, name: str, **keys: Any) -> str:
        """Its table in a configuration file."""
        values = {"name": name, "url": self.url, "models": self.models, **keys}
        return f"[[{kind}]]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in values.items()) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)
