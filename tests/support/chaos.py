"""Nodes that misbehave by a seed, clients that hurry, stall and leave, and what each of them saw."""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support.raw_client import RawClient, Reply
from tests.support.raw_node import RawJob, RawNode, answer, chunk, usage

WORDS = 30
STALL_S = 60.0

JOB_KINDS = {
    "healthy": 50,
    "die before accepting": 4,
    "die after accepting": 4,
    "die in the answer": 6,
    "silent after accepting": 3,
    "silent in the answer": 3,
    "error status": 5,
    "error event": 4,
    "end without a finish": 3,
    "answer another job": 2,
    "rubbish frame": 2,
    "lie about usage": 4,
}
CLIENT_KINDS = {"read": 60, "whole": 20, "leave early": 12, "leave in the answer": 12, "stall": 4, "read slowly": 6}


def pick(rng: random.Random, kinds: dict[str, int]) -> str:
    return rng.choices(list(kinds), list(kinds.values()))[0]


class ChaosNode:
    """A node whose jobs go wrong in all ways, and which leaves and comes back."""

    def __init__(self, url: str, number: int, seed: int) -> None:
        self.rng = random.Random(f"{seed}-{number}")
        self.name = f"n{number:02d}"
        self.url = url
        self.seen: Counter[str] = Counter()
        self.raw = RawNode(url, slots=6, script=self.run, heartbeat_s=0.5)
        self.calm = True

    def words(self) -> list[str]:
        """Words that tell who said them and in which order."""
        return [f"{self.name}.{number} " for number in range(WORDS)]

    async def run(self, job: RawJob) -> None:
        kind = "healthy" if self.calm else pick(self.rng, JOB_KINDS)
        self.seen[kind] += 1
        with contextlib.suppress(ConnectionError):
            await self._run(kind, job)

    async def _run(self, kind: str, job: RawJob) -> None:
        words, cut = self.words(), self.rng.randrange(1, WORDS)
        if kind in ("healthy", "lie about usage"):
            await self._answer(job, words, tokens=WORDS if kind == "healthy" else 1_000_000)
            return
        if kind == "die before accepting":
            await job.drop()
            return
        await job.accept()
        if kind == "die after accepting":
            await job.drop()
        elif kind == "silent after accepting":
            await self._silence(job)
        elif kind == "error status":
            status = self.rng.choice([400, 401, 404, 429, 500, 503])
            await job.head(status, "application/json")
            await job.send(b'{"error": {"message": "no", "type": "t", "param": null, "code": "c"}}')
            await job.end()
        elif kind == "answer another job":
            await job.socket.send('{"type": "head", "id": "another", "status": 200}')
            await job.end()
        elif kind == "rubbish frame":
            await job.socket.send("{rubbish")
        else:
            await self._break_answer(kind, job, words[:cut])

    async def _break_answer(self, kind: str, job: RawJob, words: list[str]) -> None:
        await job.head()
        await job.event(chunk("", role="assistant"))
        for word in words:
            await job.event(chunk(word))
            await asyncio.sleep(0.002)
        if kind == "die in the answer":
            await job.drop()
        elif kind == "silent in the answer":
            await self._silence(job)
        elif kind == "error event":
            await job.event({"error": {"message": "the engine is gone", "type": "server_error", "code": 500}})
            await job.end()
        else:
            await job.end()

    @staticmethod
    async def _silence(job: RawJob) -> None:
        """Say nothing until the coordinator gives up."""
        async with asyncio.timeout(STALL_S):
            await job.cancelled.wait()
        await job.end(ok=False, cause="cancelled")

    async def _answer(self, job: RawJob, words: list[str], tokens: int) -> None:
        if not job.request.get("stream") or job.request.get("ignore_eos"):
            await answer(job, words, pause_s=0.001)
            return
        await job.accept()
        await job.head()
        await job.event(chunk("", role="assistant"))
        for word in words:
            if job.cancelled.is_set():
                await job.end(ok=False, cause="cancelled")
                return
            await job.event(chunk(word))
            await asyncio.sleep(0.002)
        await job.event(chunk(finish="stop"))
        await job.event(usage(tokens))
        await job.send(b"data: [DONE]\n\n")
        await job.end()

    async def flap(self) -> None:
        """Leave and come back now and then."""
        while True:
            await asyncio.sleep(self.rng.uniform(2, 12))
            self.seen["left"] += 1
            await self.raw.leave()
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            with contextlib.suppress(ConnectionError, OSError):
                await self.raw.join()


@dataclass
class Seen:
    """What one client did and what came of it."""

    kind: str
    request_id: str | None = None
    ending: str = "?"
    """`answer`, `error`, `error event`, `left` or `cut`."""
    text: str = ""
    faults: list[str] = field(default_factory=list)


async def client(url: str, key: str, model: str, seed: int, number: int) -> Seen:
    """One client by its seed."""
    rng = random.Random(f"{seed}-client-{number}")
    seen = Seen(pick(rng, CLIENT_KINDS))
    await asyncio.sleep(rng.uniform(0, 25))
    body = {"model": model, "messages": [{"role": "user", "content": f"{number}"}], "stream": seen.kind != "whole"}
    async with RawClient(url, key, receive_buffer=2048 if seen.kind == "stall" else None) as http:
        await http.post("/v1/chat/completions", body)
        if seen.kind == "leave early":
            await asyncio.sleep(rng.uniform(0, 0.05))
            http.reset()
            seen.ending = "left"
            return seen
        if seen.kind == "leave in the answer":
            for _ in range(rng.randrange(1, 6)):
                if http.reply.whole or not await http.read_some(256):
                    break
            if not http.reply.whole:
                http.reset()
                seen.ending = "left"
                return seen
        if seen.kind in ("stall", "read slowly"):
            await asyncio.sleep(rng.uniform(0.5, 3.0))
        judge(seen, await http.answer())
    return seen


def judge(seen: Seen, reply: Reply) -> None:
    """How an answer ended, and everything about it that must not be."""
    if not reply.whole:
        seen.ending = "cut"
        if seen.kind != "stall":
            seen.faults.append("the answer ended without an end")
        return
    seen.request_id = reply.headers.get("x-request-id")
    if reply.status != 200:
        seen.ending = "error"
        if set(reply.json["error"]) != {"message", "type", "param", "code"}:
            seen.faults.append(f"an error of another shape: {reply.json}")
        return
    if seen.kind == "whole":
        seen.text, ends = reply.json["choices"][0]["message"]["content"], 1
    else:
        data = reply.data
        seen.text = reply.text
        errors = [event for event in data if isinstance(event, dict) and "error" in event]
        finishes = [
            event
            for event in data
            if isinstance(event, dict) and any(each.get("finish_reason") for each in event.get("choices", ()))
        ]
        ends = len(finishes)
        if len(errors) + ends != 1:
            seen.faults.append(f"{len(errors)} errors and {ends} finishes in one stream")
        if (data[-1] == "[DONE]") != (ends == 1):
            seen.faults.append("the end marker does not fit the ending")
    seen.ending = "answer" if ends else "error event"
    check_text(seen, whole=bool(ends))


def check_text(seen: Seen, *, whole: bool) -> None:
    """One node's words, from the first on, in order, and all of them when the answer is whole."""
    words = seen.text.split()
    if len({word.split(".")[0] for word in words}) > 1:
        seen.faults.append(f"texts of several nodes spliced: {seen.text}")
    if [int(word.split(".")[1]) for word in words] != list(range(len(words))):
        seen.faults.append(f"words lost, doubled or out of order: {seen.text}")
    if whole and len(words) != WORDS:
        seen.faults.append(f"{len(words)} of {WORDS} words in a whole answer")


def table(clients: list[Seen], nodes: list[ChaosNode], facts: dict[str, Any]) -> str:
    """What happened, for people."""
    endings = Counter((each.kind, each.ending) for each in clients)
    lines = [f"{'client':<22}{'ending':<14}count"]
    lines += [f"{kind:<22}{ending:<14}{count}" for (kind, ending), count in sorted(endings.items())]
    jobs: Counter[str] = sum((node.seen for node in nodes), Counter())
    lines += ["", f"{'job at a node':<36}count"] + [f"{kind:<36}{count}" for kind, count in sorted(jobs.items())]
    lines += ["", *(f"{name:<36}{value}" for name, value in facts.items())]
    return "\n".join(lines)
