"""Second opinions: a sampled share of PUBLIC greedy answers is asked of another node too, after the client has its answer.

A request that says where it may go, by a node or a region that has to be, is asked nobody else.

This is what looks over the gateway's shoulder. The request and the answer stay in memory, bounded, and nowhere else.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any, Final

import orjson
import structlog

from brain_coord.classes.target import Target
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.skips import Ask
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.decide import Decision
from brain_coord.gateway.request import ApiRequest
from brain_coord.measure.tokenizer import Tokenizers
from brain_coord.measure.transcript import read_transcript
from brain_coord.probes.pace import ProbeSettings, shadow_share
from brain_coord.probes.referee import Asked, Referee, fit_peers
from brain_coord.probes.verdict import Given
from brain_coord.routing.vocabulary import Privacy, ResourceClass

log = structlog.get_logger("brain.probe")

PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions"})
BODY_BYTES: Final = 64 * 1024
ANSWER_BYTES: Final = 256 * 1024
WAITING: Final = 64
"""Answers kept for a second opinion; further ones are let go."""

AT_ONCE: Final = 4
PAUSE_S: Final = (0.5, 20.0)
"""The second node is asked so long after the first, so that two jobs alike do not arrive together."""

NODE_CLASSES: Final = {ResourceClass.NATIVE_NETWORK: False, ResourceClass.CLOUD_GPU: True}


@dataclass(frozen=True, slots=True)
class _Kept:
    asked: Asked
    given: Given


@dataclass(slots=True)
class SecondOpinions:
    """Implements the gateway's `Watch`."""

    registry: Registry
    referee: Referee
    settings: ProbeSettings
    tokenizers: Tokenizers = field(default_factory=Tokenizers)
    random: Random = field(default_factory=lambda: Random(SystemRandom().getrandbits(256)))  # noqa: S311 — by its seed
    """Unforeseeable by its seed; the system's own would be asked for every request."""
    _waiting: deque[_Kept] = field(default_factory=deque)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    # --- the gateway's side: cheap, never raises for what a client sent ----------------------------------------------

    def begins(self, request: ApiRequest, decision: Decision) -> bool:
        """Count whom the request passes by, and say whether its answer will be looked at."""
        kept = decision.class_decision.kept
        counted: list[Counted] | None = kept.get("counted")
        if counted is None:
            counted = kept["counted"] = _counted(decision)
        prospects = decision.prospects
        for resource_class, operator, ask in counted:
            node_decision = prospects[resource_class].node_decision
            if node_decision is not None:
                self.registry.decided(operator, ask, node_decision.selected)
        if request.model in self.tokenizers:
            return True
        # Could it be one for a second opinion? Drawn at the highest share, thinned once the node is known.
        drawn, settings = self.random.random(), self.settings
        if drawn >= settings.shadow_share and drawn >= settings.closer_share:  # first, as it settles most of them
            return False
        return len(self._waiting) < WAITING and self._may_keep(request, decision)

    def _most(self) -> float:
        return max(self.settings.shadow_share, self.settings.closer_share)

    def ends(self, request: ApiRequest, decision: Decision, target: Target, answer: Answer) -> None:
        """The answer is whole: count its tokens where that can be done exactly, and keep it if a peer could be asked."""
        kept = answer.kept
        if kept is None or len(kept) > ANSWER_BYTES:
            return
        countable = target.model in self.tokenizers
        node = None if target.node_id is None else self.registry.get(target.node_id)
        drawn = 1.0 if request.model in self.tokenizers else self._most()  # the share that `begins` let through
        sampled = (
            node is not None
            and self._may_keep(request, decision)
            and self.random.random() < shadow_share(node, self.settings) / drawn
        )
        if not countable and not sampled:
            return
        said = read_transcript(bytes(kept), streamed=request.stream)
        if countable and len(said.whole.encode("utf-8", "surrogatepass")) == answer.clock.text_bytes:
            # Only of all the text that passed: other API forms, and further choices, are not read here.
            answer.counted = self.tokenizers.count(target.model, said.whole)
        if sampled and node is not None and len(self._waiting) < WAITING:
            body = request.body_for(target.model)
            asked = Asked(target.model, body, request.dialect.path, request.stream)
            if fit_peers(self.registry, asked, [node.node_id]):
                self._waiting.append(_Kept(asked, Given(node.node_id, said.whole)))
                self._woken.set()

    def _may_keep(self, request: ApiRequest, decision: Decision) -> bool:
        """A request whose answer is kept for its tokens alone may be no one for a second opinion."""
        return (
            self.settings.shadow_share > 0
            and decision.class_decision.privacy is Privacy.PUBLIC
            and request.wishes.node is None
            and not request.wishes.require_region
            and request.dialect.path in PATHS
            and len(request.body) <= BODY_BYTES
            and _greedy(_members(request.body))
        )

    # --- asking -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask for second opinions as they come; runs for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._woken.clear()
                await self._woken.wait()
            kept = self._waiting.popleft()
            await asyncio.sleep(self.random.uniform(*PAUSE_S))
            try:
                await self.referee.settle([kept.given], kept.asked)
            except Exception:
                log.exception("second opinion failed", model=kept.asked.model)


Counted = tuple[ResourceClass, bool, Ask]
"""A class whose nodes may be passed by, whether they are the operator's own, and what is asked of them."""


def _counted(decision: Decision) -> list[Counted]:
    """The class that was chosen, or all that were meant when none was; the same for requests that ask alike."""
    query, wished = decision.query, decision.query.node_request
    if wished.node is not None:
        return []  # nobody else was a candidate
    chosen = decision.class_decision.selected
    ask = Ask(query.model, wished.region if wished.require_region else None, wished.max_ask_usd_per_1m)
    return [
        (row.resource_class, NODE_CLASSES[row.resource_class], ask)
        for row in decision.class_decision.rows
        if row.resource_class in NODE_CLASSES and row.state.supported and chosen in (None, row.resource_class)
    ]


def _members(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _greedy(body: dict[str, Any]) -> bool:
    """Whether the same model has to give the same answer again."""
    temperature = body.get("temperature")
    return (
        isinstance(temperature, int | float)
        and not isinstance(temperature, bool)
        and temperature == 0
        and body.get("n") in (None, 1)
    )
