"""Keep every connected node benchmarked: one run at a time on each, few at once, paced so that a fleet's return is no storm."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import TargetFault
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.relay import EngineFault
from brain_coord.measure.benchmark import TIMEOUT_S, TOKENS, WARM_UP_TOKENS, benchmark_body, compute_class, is_due
from brain_coord.probes.runner import run_probe
from brain_coord.routing.vocabulary import ResourceClass
from brain_coord.store.records import Benchmark
from brain_node.contract.catalog import Catalog

log = structlog.get_logger("brain.benchmark")

RETRY_FIRST_S: Final = 5.0
RETRY_MAX_S: Final = 600.0
CHECK_S: Final = 60.0


@dataclass(slots=True)
class BenchmarkKeeper:
    """Runs benchmarks when they are due. One task per node that needs any; `concurrent` of them measure at once."""

    registry: Registry
    catalog: Catalog
    save: Callable[[Benchmark], Awaitable[None]]
    concurrent: int = 4
    spread_s: float = 0.2
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _gate: asyncio.Semaphore = field(init=False)
    last_failure: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._gate = asyncio.Semaphore(self.concurrent)

    def check(self, node: Node) -> None:
        """The node joined or changed its offer: see whether something is due."""
        if node.connected and node.node_id not in self._tasks and self._due(node):
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
        """Loaded models whose benchmark is missing, old, or of another engine or hardware."""
        fingerprint, now = node.reported.fingerprint, time.time()
        due = []
        for model in node.models:
            known = node.measured.benchmarks.get(model)
            if model in node.loaded and model in self.catalog:
                measured_s, of = (known.measured_s, known.fingerprint) if known else (None, None)
                if is_due(measured_s, of, fingerprint, now):
                    due.append(model)
        return due

    async def _keep(self, node: Node) -> None:
        delay = 0.0
        await asyncio.sleep(random.uniform(0, self.spread_s))  # noqa: S311 — pacing, no secret
        while node.connected and (due := self._due(node)):
            if node.free == 0 or node.state in ("DRAINING", "OFFLINE"):
                await asyncio.sleep(1.0)
                continue
            async with self._gate:
                fault = await self._measure(node, due[0])
            if fault is None:
                delay = 0.0
                continue
            self.last_failure[node.node_id] = fault
            delay = min(RETRY_MAX_S, max(RETRY_FIRST_S, delay * 2))
            log.warning("benchmark failed", node=node.node_id, model=due[0], cause=fault, retry_s=delay)
            await asyncio.sleep(delay)

    async def _measure(self, node: Node, model: str) -> str | None:
        """Benchmark one model; why it failed, or `None`."""
        target = NodeTarget(self.registry, node, model, ResourceClass.NATIVE_NETWORK, ClassSamples())
        fingerprint = node.reported.fingerprint
        ignore_eos = True
        try:
            try:
                await run_probe(target, benchmark_body(model, WARM_UP_TOKENS, ignore_eos=True), timeout_s=TIMEOUT_S)
            except EngineFault as fault:
                if fault.status not in (400, 422):
                    raise
                ignore_eos = False  # an engine that does not know the field
            answer, _ = await run_probe(
                target, benchmark_body(model, TOKENS, ignore_eos=ignore_eos), timeout_s=TIMEOUT_S
            )
        except TargetFault as fault:
            return fault.cause
        except EngineFault as fault:
            return str(fault)
        if answer.tok_s is None or answer.clock.first_output_ms is None:
            return "the answer was too short to measure"
        mock = model in self.catalog and self.catalog.require(model).mock
        benchmark = Benchmark(
            node_id=node.node_id,
            model=model,
            decode_tok_s=answer.tok_s,
            first_output_ms=answer.clock.first_output_ms,
            compute_class=compute_class(answer.tok_s, mock=mock),
            fingerprint=fingerprint,
            measured_s=time.time(),
        )
        node.measured.benchmarks[model] = benchmark
        self.last_failure.pop(node.node_id, None)
        log.info(
            "benchmarked", node=node.node_id, model=model, tok_s=answer.tok_s, compute_class=benchmark.compute_class
        )
        await self.save(benchmark)
        self.registry.capacity()
        return None

    async def stop(self) -> None:
        """End every run."""
        for task in tuple(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
