"""An OpenAI server on loopback that runs no model and says so in every answer; for trying things out."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any, Final

import orjson
from aiohttp import web

from brain_node.contract.catalog import MOCK_MODEL_ID

_SENTENCE: Final = "This is the Brain Node mock: no model ran, and these words are fixed. "
_WORDS: Final = tuple(word + " " for word in _SENTENCE.split())
_CONTEXT: Final = 8192


def _error(status: int, message: str, code: str) -> web.Response:
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def _text_of(messages: Any) -> str | None:
    """All text in a chat's messages, or `None` when they are no messages."""
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        return None
    contents = (m.get("content") for m in messages)
    return " ".join(content for content in contents if isinstance(content, str))


class MockServer:
    """Serves `brain/mock`: chat and legacy completions, streamed word by word or whole.

    Args:
        word_s: pause between words, in seconds.
    """

    def __init__(self, word_s: float = 0.01) -> None:
        self._word_s = word_s
        self._runner: web.AppRunner | None = None
        self._ids = itertools.count(1)
        self.base_url = ""
        self.running = 0
        """Answers being given right now."""

    async def start(self) -> None:
        """Listen on a free loopback port."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=0.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening and cut what runs."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": MOCK_MODEL_ID, "object": "model", "owned_by": "brain-node", "max_model_len": _CONTEXT}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            return _error(400, "the request is not JSON", "bad_json")
        if not isinstance(body, dict):
            return _error(400, "the request is not an object", "bad_request")
        if body.get("model") != MOCK_MODEL_ID:
            return _error(404, f"the model `{body.get('model')}` does not exist", "model_not_found")
        prompt = _text_of(body.get("messages")) if chat else body.get("prompt")
        if not isinstance(prompt, str):
            return _error(400, "`messages` or `prompt` is missing or malformed", "bad_request")
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            return _error(400, "`max_tokens` must be a whole number above 0", "bad_request")
        words, finish = _plan(limit, ignore_eos=body.get("ignore_eos") is True)
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": words}
        usage["total_tokens"] = usage["prompt_tokens"] + words
        form = _Form(f"mock-{next(self._ids)}", int(time.time()), chat=chat)
        self.running += 1
        try:
            if body.get("stream") is True:
                options = body.get("stream_options")
                wanted = isinstance(options, dict) and options.get("include_usage") is True
                return await self._stream(request, form, words, finish, usage if wanted else None)
            await asyncio.sleep(self._word_s * words)
            return web.Response(body=form.whole("".join(_words(words)), finish, usage), content_type="application/json")
        finally:
            self.running -= 1

    async def _stream(
        self, request: web.Request, form: "_Form", words: int, finish: str, usage: dict[str, int] | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the caller hung up: that is how jobs are cancelled
            if form.chat:
                await response.write(form.piece(None, None))
            for index, word in enumerate(_words(words), 1):
                await response.write(form.piece(word, finish if index == words else None))
                await asyncio.sleep(self._word_s)
            if usage is not None:
                await response.write(form.usage(usage))
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        return response


def _plan(limit: int | None, *, ignore_eos: bool) -> tuple[int, str]:
    """How many words to say, and the finish reason."""
    if ignore_eos:
        return limit or 4 * len(_WORDS), "length"
    if limit is not None and limit < len(_WORDS):
        return limit, "length"
    return len(_WORDS), "stop"


def _words(count: int) -> Iterator[str]:
    return itertools.islice(itertools.cycle(_WORDS), count)


class _Form:
    """The JSON of one answer, in the chat or the legacy form."""

    def __init__(self, answer_id: str, created: int, *, chat: bool) -> None:
        self.chat = chat
        kind = "chat.completion" if chat else "text_completion"
        self._base = {"id": answer_id, "created": created, "model": MOCK_MODEL_ID, "mock": True, "object": kind}
        self._chunk = {**self._base, "object": "chat.completion.chunk" if chat else kind}

    def whole(self, text: str, finish: str, usage: dict[str, int]) -> bytes:
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return orjson.dumps({**self._base, "choices": [{"index": 0, **said, "finish_reason": finish}], "usage": usage})

    def piece(self, word: str | None, finish: str | None) -> bytes:
        """One event; without a word it only announces the role."""
        said: dict[str, Any] = {"text": word}
        if self.chat:
            said = {"delta": {"content": word} if word is not None else {"role": "assistant", "content": ""}}
        return self._event({"choices": [{"index": 0, **said, "finish_reason": finish}]})

    def usage(self, usage: dict[str, int]) -> bytes:
        return self._event({"choices": [], "usage": usage})

    def _event(self, rest: dict[str, Any]) -> bytes:
        return b"data: " + orjson.dumps({**self._chunk, **rest}) + b"\n\n"
