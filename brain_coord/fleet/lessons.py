"""What answers and benchmarks teach about a node: its speed, what its tokens are worth, and how many jobs it bears at once."""

from dataclasses import dataclass, field
from typing import Final

from brain_coord.fleet.node import Node
from brain_coord.measure.credit import credit, delivered
from brain_coord.measure.density import TokenDensity
from brain_coord.measure.lag import LoopLag
from brain_coord.measure.slots import COMPANY
from brain_coord.measure.speed import StreamSample
from brain_coord.store.records import Benchmark

OWN_STALL_SHARE: Final = 0.05
"""A stream across which our own loop stood still for more than this share of its time teaches nothing."""


@dataclass(slots=True)
class Lessons:
    """Owned by the event loop's thread. `now` is in seconds of the monotonic clock."""

    lag: LoopLag = field(default_factory=LoopLag)
    density: TokenDensity = field(default_factory=TokenDensity)
    trusted: set[str] = field(default_factory=set)
    """Ids of nodes whose token counts may stand for a model's: the operator's own, and those it vouches for."""

    def learn(
        self,
        node: Node,
        model: str,
        sample: StreamSample,
        now: float,
        *,
        prompt_bytes: int,
        dispatched: float,
        streamed: bool,
        load: float,
    ) -> bool:
        """Take in one completed answer that was not empty; whether the node has more slots by it, or fewer.

        Args:
            node: that answered.
            model: that it answered with.
            sample: what came when.
            now: monotonic seconds.
            prompt_bytes: size of the request's body.
            dispatched: when the job left for the node, monotonic seconds.
            streamed: whether the answer was a stream.
            load: jobs on the node while it ran, on average.
        """
        clock, (tokens, basis), _ = sample
        measured = node.measured
        rtt_ms = measured.rtt.rtt_ms
        last = clock.last_output or now
        elapsed_s = last - dispatched
        if self.lag.stalled_s(dispatched, last) > OWN_STALL_SHARE * elapsed_s:
            return False  # it was the coordinator that was slow
        worth = None
        first_ms = None
        if streamed and clock.first_output is not None:
            first_ms = (clock.first_output - dispatched) * 1000
            worth = credit(sample, prompt_bytes=prompt_bytes, rtt_ms=rtt_ms, dispatched=dispatched)
        if basis in ("usage", "clipped"):
            self.density.add(node.node_id, model, tokens, clock.text_bytes)
        resized = False
        if load >= COMPANY:
            told = worth or delivered(tokens, prompt_bytes=prompt_bytes, elapsed_s=elapsed_s, rtt_ms=rtt_ms)
            lone = measured.lone_tok_s(model)
            share = told.tok_s / lone if told is not None and lone else None
            exact = told is not None and not told.at_most and basis != "estimated"
            resized = node.borne.completed(load, share, node.reported.offer.slots, exact=exact)
        learned = measured.learn(model, worth, first_ms, now)
        # How far its tokens are believed hangs on its peers too, so an answer that taught nothing may still change it.
        factor = self.density.factor(node.node_id, model, "answers", self.trusted)
        if learned or measured.density_factor.get(model) != factor:
            self._settle(node, model)
        return resized

    def benchmarked(self, node: Node, benchmark: Benchmark, tokens: int, text_bytes: int) -> None:
        """A benchmark was taken, or remembered; `tokens` as reported for `text_bytes` of prose."""
        self.density.add(node.node_id, benchmark.model, tokens, text_bytes, "benchmark")
        node.measured.benchmarked(benchmark)
        self._settle(node, benchmark.model)

    def forget(self, node: Node) -> None:
        """The node has become another machine, or another engine."""
        node.measured.forget_speed()
        self.density.forget(node.node_id)
        for model in {*node.measured.benchmarks, *node.measured.credited}:
            self._settle(node, model)

    def expire(self, node: Node, now: float) -> None:
        """Let samples go that are too old."""
        for model in node.measured.expire(now):
            self._settle(node, model)

    def _settle(self, node: Node, model: str) -> None:
        node.measured.settle(node.node_id, model, self.density, self.trusted)
