"""A chat on browser tabs as a target of the gateway: tokenised, driven and sampled here, computed there."""

import secrets
import time
from asyncio import to_thread
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import orjson
import structlog

from brain_coord.browser.chat_request import ChatRefused, ChatRequest, read_chat
from brain_coord.browser.holders import StageKeeper
from brain_coord.browser.models import BrowserModel
from brain_coord.browser.pipeline import Pipeline
from brain_coord.browser.speech import Speech, Voice
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.work import WorkFault
from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, ReplyHead, Take, TargetFault, hand_on
from brain_coord.measure.speed import StreamSample
from brain_coord.routing.inputs import NodeRequest
from brain_coord.routing.vocabulary import ResourceClass

log = structlog.get_logger("brain.browser")

LONG_BYTES: Final = 16 * 1024
"""A body that is read beside the event loop."""


@dataclass(slots=True)
class TabsTarget:
    """The tabs that hold a model together, for one request."""

    tabs: Tabs
    keeper: StageKeeper
    browser_model: BrowserModel
    speech: Speech
    samples: ClassSamples
    health: TargetHealth
    request: NodeRequest = field(default_factory=NodeRequest)
    """What the client wants of every tab."""
    prices: Prices = field(default_factory=lambda: Prices(None, None))
    others_may: bool = False
    """The request left the model open: what tabs cannot do is for the next target, and not refused."""
    _pipeline: Pipeline | None = None

    @property
    def resource_class(self) -> ResourceClass:
        """BROWSER_NETWORK."""
        return ResourceClass.BROWSER_NETWORK

    @property
    def name(self) -> str:
        """As attempts call it; which tabs these were stands on the receipt."""
        return f"tabs:{self.browser_model.model_id}"

    @property
    def node_id(self) -> str | None:
        """They are several."""
        return None

    @property
    def model(self) -> str:
        """The model that answers."""
        return self.browser_model.model_id

    def details(self) -> dict[str, Any]:
        """For the receipt: who held which stage. Answers of language models are compared, not proved."""
        return {} if self._pipeline is None else {"verified": False, "browser": self._pipeline.story()}

    async def start(self, job: JobSpec) -> "ChatExchange":
        """Reserve a way through the tabs.

        Raises:
            TargetFault: there is none now.
        """
        asked = job.body, self.browser_model, self.speech
        try:
            # Other streams must not wait while a long text is cut into tokens.
            request = await to_thread(read_chat, *asked) if len(job.body) > LONG_BYTES else read_chat(*asked)
        except ChatRefused as refused:
            if self.others_may:
                raise TargetFault("unsupported", str(refused), ran=False, blame=False) from None
            return ChatExchange(self, None, None, refused)
        pipeline = Pipeline(self.tabs, self.keeper, self.browser_model, self.request)
        try:
            pipeline.open()
        except WorkFault as fault:
            raise TargetFault(fault.cause, str(fault), ran=False, blame=False) from None
        self._pipeline = pipeline
        return ChatExchange(self, pipeline, request, None)

    def outcome(
        self,
        result: str,
        *,
        first_output_ms: float | None,
        total_ms: float | None,
        stream: StreamSample | None = None,
    ) -> None:
        """Counts for the class, and for every tab that had a part in a completed answer; one with nothing in it for none."""
        del first_output_ms
        tok_s = None if stream is None else stream.tok_s
        if result != "completed":
            self.samples.failed()
            return
        if stream is not None and stream.empty:
            return
        self.samples.completed(total_ms)
        if self._pipeline is None:
            return
        for stage, tab_ids in self._pipeline.used.items():
            for tab_id in tab_ids:
                tab = self.tabs.get(tab_id)
                if tab is not None and tok_s is not None:
                    tab.tok_s[stage] = tok_s
        for tab_id in self._pipeline.tally:
            if (tab := self.tabs.get(tab_id)) is not None:
                self.tabs.outcome(tab, "completed")


class ChatExchange:
    """One answer being written."""

    def __init__(
        self, target: TabsTarget, pipeline: Pipeline | None, request: ChatRequest | None, refused: ChatRefused | None
    ) -> None:
        self._target = target
        self._pipeline = pipeline
        self._request = request
        self._refused = refused
        self._events: AsyncGenerator[bytes, None] | None = None
        self._id = "chatcmpl-" + secrets.token_hex(12)
        self._created = int(time.time())

    async def head(self) -> ReplyHead:
        """200, or 400 for what tabs cannot do."""
        if self._refused is not None or self._request is None:
            return ReplyHead(400, "application/json")
        return ReplyHead(200, "text/event-stream" if self._request.stream else "application/json")

    async def pass_on(self, take: Take) -> None:
        """Hand the answer on as it comes."""
        await hand_on(self._read, take)

    async def _read(self) -> bytes | None:
        if self._events is None:
            self._events = self._answer()
        try:
            return await anext(self._events, None)
        except WorkFault as fault:
            cause = "timeout" if fault.cause == "timeout" else "tab_lost"
            raise TargetFault(cause, str(fault), ran=True) from None

    async def close(self) -> None:
        """Let the tabs go."""
        if self._events is not None:
            await self._events.aclose()
        if self._pipeline is not None:
            self._pipeline.close()

    async def _answer(self) -> AsyncGenerator[bytes, None]:
        if self._refused is not None:
            yield self._refused.body()
            return
        assert self._request is not None
        parts: list[str] = []
        voice = Voice(self._target.speech, self._request.stops)
        finish = "length"
        if self._request.stream:
            yield self._chunk({"role": "assistant", "content": ""}, None)
        async for text, ended in self._speak(voice):
            finish = ended or finish
            if text and self._request.stream:
                yield self._chunk({"content": text}, None)
            parts.append(text)
        count = len(voice.tokens)
        usage = {
            "prompt_tokens": len(self._request.prompt),
            "completion_tokens": count,
            "total_tokens": len(self._request.prompt) + count,
        }
        if self._request.stream:
            yield self._chunk({}, finish)
            if self._request.usage:
                yield self._event({"choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"
            return
        message = {"role": "assistant", "content": "".join(parts)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        yield orjson.dumps({**self._head("chat.completion"), "choices": [choice], "usage": usage})

    async def _speak(self, voice: Voice) -> AsyncGenerator[tuple[str, str | None], None]:
        """Pieces of text, and at the end why it ended."""
        request, pipeline = self._request, self._pipeline
        assert request is not None
        assert pipeline is not None
        began = monotonic()
        tokens = request.prompt
        for _ in range(request.most_tokens):
            top = await pipeline.step(tokens)
            token = request.sampler.draw(top)
            self._count(pipeline)
            text = voice.hear(token)
            if token in self._target.speech.ends and not request.ignore_eos:
                yield text + voice.finish(), "stop"
                break
            yield text, "stop" if voice.stopped else None
            if voice.stopped:
                break
            tokens = [token]
        else:
            yield voice.finish(), "length"
        log.debug("chat on tabs", tokens=len(voice.tokens), seconds=round(monotonic() - began, 3))

    def _count(self, pipeline: Pipeline) -> None:
        for tab in pipeline.on_the_way:
            tab.verified.tokens += 1

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._target.model}

    def _chunk(self, delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event({"choices": [choice]})

    def _event(self, members: dict[str, Any]) -> bytes:
        return b"data: " + orjson.dumps({**self._head("chat.completion.chunk"), **members}) + b"\n\n"
