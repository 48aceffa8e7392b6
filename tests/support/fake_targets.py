"""Targets and classes without any I/O: scripted, and recording every byte that they are given."""

import asyncio
import json
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from brain_coord.classes.backend import Prospect, Query
from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, ReplyHead, Take, TargetFault
from brain_coord.gateway.attempts import Limits, run_attempts
from brain_coord.gateway.dialects import CHAT
from brain_coord.gateway.relay import PhaseLimits
from brain_coord.gateway.request import ApiRequest, parse_request
from brain_coord.gateway.result import Result, settle
from brain_coord.routing.inputs import ClassState
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import ResourceClass

PROMPT = "the prompt that nobody else may see"
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
QUICK = Limits(phases=PhaseLimits(accept_s=5.0, first_output_s=5.0, between_events_s=5.0), whole_s=5.0)


@dataclass
class Play:
    """What a target does with a job.

    Attributes:
        status: of its answer; `None` for one that is silent after it took the job.
        body: of its answer.
        refuses: raised instead of taking the job.
        breaks: raised instead of the answer.
        retry_after: header of its answer.
    """

    status: int | None = 200
    body: bytes = field(default_factory=lambda: json.dumps(ANSWER).encode())
    refuses: TargetFault | None = None
    breaks: TargetFault | None = None
    retry_after: str | None = None


OK = Play()


def failing(status: int, **more: Any) -> Play:
    return Play(
        status, json.dumps({"error": {"message": "no", "type": "x", "param": None, "code": None}}).encode(), **more
    )


class FakeExchange:
    """One job on a fake target."""

    def __init__(self, target: "FakeTarget", play: Play) -> None:
        self._target = target
        self._play = play

    async def head(self) -> ReplyHead:
        if self._play.breaks is not None:
            raise self._play.breaks
        if self._play.status is None:
            await asyncio.Event().wait()
        assert self._play.status is not None
        return ReplyHead(self._play.status, "application/json", self._play.retry_after)

    async def pass_on(self, take: Take) -> None:
        waiting = take(self._play.body)
        if waiting is not None:
            await waiting

    async def close(self) -> None:
        self._target.running -= 1
        self._target.log.append(f"{self._target.name} closed")


class FakeTarget:
    """Plays one play after another, the last one for ever."""

    node_id = None
    prices = Prices()

    def __init__(
        self,
        name: str = "t",
        *plays: Play,
        resource_class: ResourceClass = ResourceClass.NATIVE_NETWORK,
        log: list[str] | None = None,
        health: TargetHealth | None = None,
    ) -> None:
        self.name = name
        self.model = "m"
        self.resource_class = resource_class
        self.health = health or TargetHealth(name)
        self.plays = list(plays) or [OK]
        self.log = [] if log is None else log
        self.seen: list[bytes] = []
        self.outcomes: list[str] = []
        self.running = 0

    async def start(self, job: JobSpec) -> FakeExchange:
        play = self.plays[min(len(self.seen), len(self.plays) - 1)]
        self.seen.append(job.body)
        self.log.append(f"{self.name} asked")
        if play.refuses is not None:
            raise play.refuses
        self.running += 1
        return FakeExchange(self, play)

    def outcome(self, result: str, **_: Any) -> None:
        self.outcomes.append(result)


class FakeClass:
    """A class whose state is what the test says, possibly another one at each look."""

    configured = True

    def __init__(
        self,
        resource_class: ResourceClass,
        state: Callable[[], ClassState],
        targets: Sequence[FakeTarget],
        wait_s: float,
    ) -> None:
        self.resource_class = resource_class
        self.samples = ClassSamples()
        self.fakes = list(targets)
        self._state = state
        self._wait_s = wait_s

    def models(self) -> list[str]:
        return ["m"]

    def offers(self) -> tuple[()]:
        return ()

    def prospect(self, query: Query, output_tokens: int = 0, body: bytes = b"") -> Prospect:
        return Prospect(self._state(), wait_s=min(self._wait_s, query.wait_s))

    def target(self, query: Query, prospect: Prospect, passed: Set[str]) -> FakeTarget | None:
        return next((fake for fake in self.fakes if fake.name not in passed), None)

    def full(self, prospect: Prospect) -> Set[str]:
        return frozenset()

    def whole(self, query: Query, decided: NodeDecision) -> Callable[[], NodeDecision]:
        return lambda: decided


def request(stream: bool = False, headers: dict[bytes, bytes] | None = None, **members: Any) -> ApiRequest:
    """A chat request for the model `m`."""
    body = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "stream": stream, **members}
    return parse_request("req-1", CHAT, json.dumps(body).encode(), headers or {})


class InOrder:
    """Gives out the targets as they stand; nothing comes of waiting."""

    def __init__(self, targets: Sequence[FakeTarget]) -> None:
        self._left = list(targets)

    def best(self) -> FakeTarget | None:
        return self._left.pop(0) if self._left else None

    async def wait(self) -> None:
        return None


async def attempt(*targets: FakeTarget, limits: Limits = QUICK, asked: ApiRequest | None = None) -> Result:
    """What comes of a request that may go to these targets in this order; outcomes are settled."""
    result, asked = Result(), asked or request()
    await run_attempts(asked, InOrder(targets), result, began=monotonic(), limits=limits, stream=None)
    settle(asked, result, completed=result.body is not None)
    return result
