"""Keep every connected node benchmarked: one run at a time on each, few at once, paced so that a fleet's return is no storm."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import orjson
import structlog

from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import TargetFault
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.relay import EngineFault
from brain_coord.measure.benchmark import (
    LENGTHS,
    LONG_ENOUGH_S,
    TIMEOUT_S,
    WARM_UP_TOKENS,
    benchmark_body,
    benchmark_prompt,
    compute_class,
    is_due,
    measured_tokens,
)
from brain_coord.measure.credit import credit
from brain_coord.measure.speed import StreamSample, TokenCount, decode_tok_s
from brain_coord.probes.runner import Probe, run_probe
from brain_coord.routing.vocabulary import ResourceClass
from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import Benchmark
from brain_node.contract.catalog import Catalog

log = structlog.get_logger("brain.benchmark")

RETRY_FIRST_S: Final = 5.0
RETRY_MAX_S: Final = 600.0
CHECK_S: Final = 60.0
BUSY_S: Final = 1.0
PATIENCE_S: Final = 600.0
"""How long a node that has a benchmark is waited for until it is idle; then it is measured beside its jobs."""

OWN_LATENESS: Final = "the coordinator itself was late"

SPREAD_EACH_S: Final = 0.05
SPREAD_MAX_S: Final = 30.0
"""The start of a run is spread over so much for each node that is due, so that a fleet's return is no storm."""


@dataclass(slots=True)
class BenchmarkKeeper:
    """Runs benchmarks when they are due. One task per node that needs any; `concurrent` of them measure at once.

    Nodes that have none yet, and so no work, come before those whose benchmark only grew old.
    """

    registry: Registry
    catalog: Catalog
    save: Callable[[Benchmark], Awaitable[None]]
    concurrent: int = 4
    spread_s: float = 0.2
    last_failure: dict[str, str] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _first: asyncio.Semaphore = field(init=False)
    _again: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._first = asyncio.Semaphore(self.concurrent)
        self._again = asyncio.Semaphore(max(1, self.concurrent // 2))

    def check(self, node: Node) -> None:
        """The node joined or changed its offer: see whether something is due."""
        if node.session is not None and node.node_id not in self._tasks and self._due(node):
            task = asyncio.create_task(self._keep(node))
            self._tasks[node.node_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(node.node_id, None))

    async def run(self) -> None:
        """Look at the whole fleet now and then, for benchmarks that grew old; runs for ever."""
        while True:
            await asyncio.sleep(CHECK_S)
            for node in list(self.registry.nodes.values()):
                self.check(node)

    def _due(self, node: Node) -> list[str]:
        """Loaded models whose benchmark is missing, old, or of another engine or hardware; those without one first."""
        now_s, loaded = time.time(), set(node.loaded)
        missing, old = [], []
        for model in node.models:
            if model not in loaded or model not in self.catalog:
                continue
            known = node.measured.benchmarks.get(model)
            if known is None:
                missing.append(model)
            elif is_due(
                known.measured_s,
                known.fingerprint,
                node.reported.fingerprint_of(model),
                now_s,
                node_id=node.node_id,
                returned_s=node.returned_s,
            ):
                old.append(model)
        return missing + old

    async def _keep(self, node: Node) -> None:
        delay, waited_s = 0.0, 0.0
        spread_s = min(SPREAD_MAX_S, self.spread_s + SPREAD_EACH_S * len(self._tasks))
        await asyncio.sleep(random.uniform(0, spread_s))  # noqa: S311 — pacing, no secret
        while node.session is not None and (due := self._due(node)):
            again = due[0] in node.measured.benchmarks
            busy = node.active > 0 if again and waited_s < PATIENCE_S else node.free == 0
            if busy or node.state in ("DRAINING", "OFFLINE"):
                waited_s += BUSY_S
                await asyncio.sleep(BUSY_S)
                continue
            async with self._again if again else self._first:
                fault = await self._measure(node, due[0])
            waited_s = 0.0
            if fault is None:
                delay = 0.0
                continue
            # Our own lateness says nothing about the node, which has no work until it is measured: soon again.
            delay = RETRY_FIRST_S if fault == OWN_LATENESS else min(RETRY_MAX_S, max(RETRY_FIRST_S, delay * 2))
            log.warning("benchmark failed", node=node.node_id, model=due[0], cause=fault, retry_s=delay)
            await asyncio.sleep(delay)

    async def _measure(self, node: Node, model: str) -> str | None:
        """Benchmark one model; why it failed, or `None`. Kept apart from customers' outcomes either way."""
        fault = await self._run(node, model)
        if fault is None:
            self.last_failure.pop(node.node_id, None)
        else:
            self.last_failure[node.node_id] = fault
        # A node that left is not to blame for the run that its leaving ended, nor any for our own lateness.
        if node.session is not None and fault != OWN_LATENESS:
            result = "completed" if fault is None else "failed"
            self.registry.record(node, "benchmark", result, model, fault)
        return fault

    async def _run(self, node: Node, model: str) -> str | None:
        target = NodeTarget(self.registry, node, model, ResourceClass.NATIVE_NETWORK, ClassSamples())
        fingerprint = node.reported.fingerprint_of(model)
        try:
            ignore_eos = await self._warm_up(target)
            for length in LENGTHS:
                prompt = benchmark_prompt()
                body = orjson.dumps(benchmark_body(model, prompt, length, ignore_eos=ignore_eos))
                probe = await run_probe(target, body, timeout_s=TIMEOUT_S)
                last = probe.answer.clock.last_output
                if last is None or last - target.dispatched >= LONG_ENOUGH_S or not ignore_eos:
                    break
        except TargetFault as fault:
            return fault.cause
        except EngineFault as fault:
            return str(fault)
        return await self._keep_result(node, target, probe, length, len(prompt), fingerprint)

    @staticmethod
    async def _warm_up(target: NodeTarget) -> bool:
        """One run that does not count: it pays for loading and compiling. Whether the engine knows `ignore_eos`."""
        body = benchmark_body(target.model, benchmark_prompt(), WARM_UP_TOKENS, ignore_eos=True)
        try:
            await run_probe(target, orjson.dumps(body), timeout_s=TIMEOUT_S)
        except EngineFault as fault:
            if fault.status not in (400, 422):
                raise
            return False
        return True

    async def _keep_result(
        self, node: Node, target: NodeTarget, probe: Probe, length: int, prompt_bytes: int, fingerprint: str
    ) -> str | None:
        answer, model = probe.answer, target.model
        clock, reported, _ = answer.sample
        tokens = measured_tokens(None if reported.basis == "estimated" else reported.tokens, length, clock.text_bytes)
        count = TokenCount(tokens, reported.basis)
        found = decode_tok_s(count, clock)
        worth = credit(
            StreamSample(clock, count, found),
            prompt_bytes=prompt_bytes,
            rtt_ms=node.measured.rtt.rtt_ms,
            dispatched=target.dispatched,
        )
        if worth is None or found is None or clock.first_output is None:
            return "the answer was too short to measure"
        tok_s = min(found, worth.tok_s)
        if self.registry.lessons.lag.stalled_s(target.dispatched, clock.last_output or target.dispatched) > 0:
            return OWN_LATENESS
        mock = self.catalog.require(model).mock
        benchmark = Benchmark(
            node_id=node.node_id,
            model=model,
            decode_tok_s=tok_s,
            first_output_ms=round((clock.first_output - target.dispatched) * 1000, 3),
            compute_class=compute_class(tok_s, mock=mock),
            fingerprint=fingerprint,
            measured_s=time.time(),
        )
        self.registry.benchmarked(node, benchmark, min(reported.tokens, length), clock.text_bytes)
        log.info("benchmarked", node=node.node_id, model=model, tok_s=tok_s, compute_class=benchmark.compute_class)
        try:
            await self.save(benchmark)
        except StoreUnavailable as error:
            log.warning("benchmark not written down", node=node.node_id, model=model, cause=str(error))
        return None

    async def stop(self) -> None:
        """End every run."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
