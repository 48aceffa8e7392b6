"""Canaries: questions with known answers, and comparisons with peers, asked on idle slots at unforeseeable times."""

import asyncio
from dataclasses import dataclass, field
from random import Random, SystemRandom
from time import monotonic
from typing import Final

import structlog

from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.probes.pace import COMPARED_SHARE, DOUBT_S, Plan, ProbeSettings, next_plan
from brain_coord.probes.questions import SUMS_FROM_B, Kind, Question, ask
from brain_coord.probes.referee import Asked, Referee, Reply, fit_peers, idle
from brain_coord.probes.verdict import Given
from brain_node.contract.catalog import Catalog

log = structlog.get_logger("brain.probe")

TICK_S: Final = 1.0
AT_ONCE: Final = 8
SLICE: Final = 500
"""Nodes looked at in one go, so that a large fleet never holds up the loop."""

ECHO_FROM_B: Final = 0.3
"""Parameters, in billions, from which a model is asked anything with a known answer; smaller ones are only compared. (A
model of 0.135 billion gave 62 of 64 echoes back rightly.)"""


@dataclass(slots=True)
class CanaryKeeper:
    """Asks every node now and then; the only way back for one that is DEGRADED."""

    registry: Registry
    catalog: Catalog
    referee: Referee
    settings: ProbeSettings
    random: Random = field(default_factory=SystemRandom)
    _plans: dict[str, Plan] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        """Look at the fleet every second; runs for ever."""
        while True:
            now = monotonic()
            for number, node in enumerate(list(self.registry.nodes.values())):
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                if node.session is not None and len(self._tasks) < AT_ONCE and self.due(node, now):
                    self._start(node)
            await asyncio.sleep(TICK_S)

    def doubt(self, node: Node) -> None:
        """Something about a node is odd: ask it soon."""
        if self.settings.canaries:
            soon = monotonic() + self.random.uniform(*DOUBT_S)
            plan = self._plans.get(node.node_id)
            if plan is None or plan.at > soon:
                self._plans[node.node_id] = Plan(soon, 1 << 62)

    def due(self, node: Node, now: float) -> bool:
        """Whether a node is to be asked now; only one that has been timed already, and only where a slot is idle."""
        if node.node_id in self._tasks or not node.measured.credited or node.state == "DRAINING":
            return False
        if node.health.degraded is not None:
            probe_at = node.health.next_probe_at
            return probe_at is not None and now >= probe_at and idle(node)
        if not self.settings.canaries:
            return False
        plan = self._plans.get(node.node_id)
        if plan is not None and not plan.due(node, now):
            return False  # nearly always, and asked of every node every second
        if not self._models(node):
            return False
        if plan is None:
            plan = self._plans[node.node_id] = next_plan(node, self.settings, now, self.random)
        return plan.due(node, now) and idle(node)

    def _models(self, node: Node) -> list[str]:
        """Real models it has answered with before."""
        loaded = set(node.loaded)
        return [
            model
            for model in node.models
            if model in loaded
            and model in node.measured.credited
            and model in self.catalog
            and not self.catalog.require(model).mock
        ]

    def _start(self, node: Node) -> None:
        task = asyncio.create_task(self.canary(node))
        self._tasks[node.node_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(node.node_id, None))

    async def canary(self, node: Node) -> None:
        """Ask one node one thing."""
        planned = node.health.next_probe_at
        try:
            models = self._models(node)
            if not models:
                await self._say_anything(node)
            else:
                await self._ask(node, self.random.choice(models))
        finally:
            if node.health.next_probe_at == planned:  # it came to nothing that counts
                node.health.unanswered_probe(monotonic())
            self._plans[node.node_id] = next_plan(node, self.settings, monotonic(), self.random)

    async def _ask(self, node: Node, model: str) -> None:
        has_peers = bool(fit_peers(self.registry, Asked(model, b""), [node.node_id]))
        degraded = node.health.degraded
        lost_comparisons = degraded is not None and degraded.cause == "mismatches"
        params_b = self.catalog.require(model).params_b
        compare = lost_comparisons or node.health.doubted or self.random.random() < COMPARED_SHARE
        compare = compare or params_b < ECHO_FROM_B
        if has_peers and compare and (degraded is None or lost_comparisons):
            await self._compare(node, model)
        elif params_b < ECHO_FROM_B:
            await self._check(node, model, ask("fingerprint", model, self.random))
        else:
            kind: Kind = "sum" if params_b >= SUMS_FROM_B and self.random.random() < 0.5 else "echo"
            await self._check(node, model, ask(kind, model, self.random))

    async def _check(self, node: Node, model: str, question: Question) -> None:
        """A question whose answer is known; for one without, any answer will do."""
        reply = await self.referee.ask(node, Asked(model, question.body))
        if reply.result == "inconclusive":
            return
        if reply.said is not None:
            right = bool(reply.said.whole.strip()) if question.right is None else question.right(reply.said)
            if not right:
                reply = Reply("failed", cause=f"wrong answer to a canary ({question.kind})")
        log.info("canary", node=node.node_id, model=model, kind=question.kind, result=reply.result, cause=reply.cause)
        stands_in = node.health.degraded is not None and node.health.degraded.cause == "mismatches"
        self.referee.record(node, "canary", reply, model)
        if stands_in:
            # Nobody is left to be compared with: right answers have to do.
            self.registry.stand_in(node, passed=reply.result == "completed")

    async def _compare(self, node: Node, model: str) -> None:
        """A question that only peers can answer the same way."""
        asked = Asked(model, ask("fingerprint", model, self.random).body)
        reply = await self.referee.ask(node, asked)
        if reply.result == "inconclusive":
            return
        self.referee.record(node, "shadow" if reply.said is not None else "canary", reply, model)
        if reply.said is not None:
            verdict = await self.referee.settle([Given(node.node_id, reply.said.whole)], asked)
            log.info("comparison", node=node.node_id, model=model, agreed=node.node_id in verdict.matched)

    async def _say_anything(self, node: Node) -> None:
        """A node with nothing but a mock can only show that it answers."""
        model = next((model for model in node.models if model in node.measured.credited), None)
        if model is None:
            return
        reply = await self.referee.ask(node, Asked(model, ask("echo", model, self.random).body))
        if reply.said is not None and not reply.said.whole.strip():
            reply = Reply("failed", cause="an empty answer")
        if reply.result != "inconclusive":
            self.registry.record(node, "canary", reply.result, model, reply.cause)

    async def stop(self) -> None:
        """End every run."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
