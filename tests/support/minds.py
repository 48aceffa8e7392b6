"""What raw nodes say in the place of a model: one that understands patterns and is always itself, and many that cheat."""

import asyncio
import hashlib
import random
import re
from collections.abc import Callable, Sequence

from tests.support.raw_node import RawJob, chunk, usage

WORDS = (
    "garden river lantern window stone morning paper silver quiet distant market yellow winter bridge letter music "
    "shadow orange harbor copper gentle marble forest candle violet summer anchor velvet thunder meadow"
).split()


def said_by(job: RawJob, salt: str = "", length: int = 24) -> list[str]:
    """A greedy model's answer: the same for the same messages, another one with another salt; patterns are gone on with."""
    messages = job.request.get("messages") or []
    shown = [each["content"] for each in messages if each["role"] != "system"]
    if len(shown) >= 3:
        asked, answered, last = shown[0], shown[1], shown[-1]
        if re.fullmatch(r"[\d +=]+", last):
            return [str(sum(int(each) for each in re.findall(r"\d+", last)))]
        return [last if asked == answered else re.split(r" / |, | ", last)[0]]
    source = random.Random(hashlib.sha256((salt + repr(shown)).encode()).digest())
    return [source.choice(WORDS) + " " for _ in range(length)]


class Mind:
    """Answers every job; the ways to cheat are arguments."""

    def __init__(
        self,
        salt: str = "",
        pause_s: float = 0.004,
        say: Callable[[RawJob], Sequence[str]] | None = None,
        hold: bool = False,
        inflate: int = 1,
        lanes: int | None = None,
    ) -> None:
        self.salt = salt
        self.pause_s = pause_s
        self.say = say
        self.hold = hold
        self.inflate = inflate
        self.lanes = lanes
        self.running = 0

    def words(self, job: RawJob) -> Sequence[str]:
        request = job.request
        if request.get("ignore_eos"):
            return [f"{WORDS[number % len(WORDS)]} " for number in range(request["max_tokens"])]
        return said_by(job, self.salt) if self.say is None else self.say(job)

    async def __call__(self, job: RawJob) -> None:
        self.running += 1
        try:
            await self._answer(job)
        finally:
            self.running -= 1

    def _share(self) -> float:
        """How much longer a word takes: an engine of a few lanes shares them among its jobs."""
        return 1.0 if self.lanes is None else max(1.0, self.running / self.lanes)

    async def _answer(self, job: RawJob) -> None:
        words = self.words(job)
        reported = usage(self.inflate * len(words))
        await job.accept()
        if not job.request.get("stream"):
            await asyncio.sleep(self.pause_s * len(words))
            await job.head(content_type="application/json")
            await job.send(_whole(job, words, reported))
            await job.end()
            return
        await job.head()
        await job.event(chunk("", role="assistant"))
        if self.hold:
            await asyncio.sleep(max(0.012, self.pause_s) * len(words))
        # A benchmark at the pace of a card, so that one run is long enough; everything else as fast as a test wants it.
        pause_s = max(0.012, self.pause_s) if job.request.get("ignore_eos") else self.pause_s
        for word in words:
            await job.event(chunk(word))
            await asyncio.sleep(0.06 / len(words) if self.hold else pause_s * self._share())
        await job.event(chunk(finish="stop"))
        await job.event(reported)
        await job.send(b"data: [DONE]\n\n")
        await job.end()


def _whole(job: RawJob, words: Sequence[str], reported: dict[str, object]) -> bytes:
    import json

    message = {"role": "assistant", "content": "".join(words)}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps(
        {"id": "chatcmpl-1", "object": "chat.completion", "choices": choices, "usage": reported["usage"]}
    ).encode()
