"""What a real model makes of the canary questions: shares of right answers by kind."""

import asyncio
from collections.abc import Sequence
from random import Random

import httpx

from brain_coord.measure.transcript import read_transcript
from brain_coord.probes.questions import Kind, ask

AT_ONCE = 8


async def right_answers(engine: httpx.AsyncClient, model: str, kind: Kind, seeds: Sequence[int]) -> list[int]:
    """The seeds of the questions that the model answers rightly."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> bool:
        question = ask(kind, model, Random(seed))
        async with gate:
            headers = {"content-type": "application/json"}
            reply = await engine.post("/v1/chat/completions", content=question.body, headers=headers)
        assert reply.status_code == 200, reply.text
        assert question.right is not None
        return question.right(read_transcript(reply.content, streamed=True))

    right = await asyncio.gather(*(one(seed) for seed in seeds))
    return [seed for seed, good in zip(seeds, right, strict=True) if good]
