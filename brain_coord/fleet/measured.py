"""What the coordinator's own clock saw of one node: the only figures that can raise its rank."""

from bisect import insort
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Literal

from brain_coord.fleet.watched import Watched
from brain_coord.measure.credit import Credit
from brain_coord.measure.density import TokenDensity
from brain_coord.measure.rtt import RttEstimator
from brain_coord.measure.slots import REACHED
from brain_coord.measure.window import MedianWindow, middle
from brain_coord.store.records import Benchmark

Basis = Literal["unmeasured", "coordinator-timed"]


@dataclass(slots=True)
class Measured(Watched):
    """Round trip, first output and decode speed, each a median of recent samples with its count."""

    rtt: RttEstimator = field(default_factory=RttEstimator)
    decode_tok_s: dict[str, MedianWindow] = field(default_factory=dict)
    """By model, from customers' streams."""
    first_output_ms: dict[str, MedianWindow] = field(default_factory=dict)
    """By model, from customers' streams."""
    benchmarks: dict[str, Benchmark] = field(default_factory=dict)
    """The latest join benchmark by model."""
    density_factor: dict[str, float] = field(default_factory=dict)
    """By model, below 1 where the node reports more tokens than its peers do for as much text."""
    credited: dict[str, float] = field(default_factory=dict)
    """Decode speed by model as the routers take it; kept up to date here because they read it for every request."""
    best_tok_s: float | None = None
    """The fastest credited benchmark over all models."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "rtt":
            value.changed = self.touched
        Watched.__setattr__(self, name, value)

    @property
    def basis(self) -> Basis:
        """Whether the node has produced a token that the coordinator timed."""
        return "coordinator-timed" if self.benchmarks or self.decode_tok_s else "unmeasured"

    def learn(self, model: str, credit: Credit | None, first_output_ms: float | None, now: float) -> bool:
        """Take in one completed stream; returns whether it says something about speed.

        Args:
            model: that answered.
            credit: what the stream is worth.
            first_output_ms: from dispatch.
            now: seconds of the monotonic clock.
        """
        learned = credit is not None
        if credit is not None:
            window = self.decode_tok_s.get(model)
            if credit.at_most:
                if window is not None:
                    learned = window.at_most(credit.tok_s, now)
                elif (known := self.benchmarks.get(model)) is not None and credit.tok_s < known.decode_tok_s:
                    _window(self.decode_tok_s, model).add(credit.tok_s, now)
                else:
                    learned = False
            else:
                _window(self.decode_tok_s, model).add(credit.tok_s, now)
        if first_output_ms is not None:
            _window(self.first_output_ms, model).add(first_output_ms, now)
        return learned

    def benchmarked(self, benchmark: Benchmark) -> None:
        """A benchmark was taken, or remembered."""
        self.benchmarks[benchmark.model] = benchmark

    def settle(self, node_id: str, model: str, density: TokenDensity, trusted: Set[str] = frozenset()) -> None:
        """Work out again what a model is credited with, after something about it was learned."""
        benchmarked = {
            name: each.decode_tok_s * density.factor(node_id, name, "benchmark", trusted)
            for name, each in self.benchmarks.items()
        }
        factor = density.factor(node_id, model, "answers", trusted)
        self.density_factor[model] = factor
        window = self.decode_tok_s.get(model)
        ordered = [] if window is None else [*window.ordered]
        if factor < 1:
            ordered = [value * factor for value in ordered]
        if model in benchmarked:
            # One more sample among others: it leads while there is no other, and soon is one of many.
            insort(ordered, benchmarked[model])
        if ordered:
            self.credited[model] = round(middle(ordered), 3)
        else:
            self.credited.pop(model, None)
        self.best_tok_s = max(benchmarked.values(), default=None)

    def lone_tok_s(self, model: str) -> float | None:
        """The speed of a job that has the node to itself, as far as it is known.

        That of the join benchmark, or what `REACHED` of the recent streams reached: a benchmark that was slowed down hides
        nothing.
        """
        benchmark, window = self.benchmarks.get(model), self.decode_tok_s.get(model)
        reached = None if window is None else window.reached(REACHED)
        if benchmark is None or (reached is not None and reached > benchmark.decode_tok_s):
            return reached
        return benchmark.decode_tok_s

    def expire(self, now: float) -> list[str]:
        """Forget old samples; returns the models whose figures changed."""
        changed = [model for model, window in self.decode_tok_s.items() if window.expire(now)]
        for windows in (self.decode_tok_s, self.first_output_ms):
            for model in [model for model, window in windows.items() if not window.samples]:
                del windows[model]
        return changed

    def forget_speed(self) -> None:
        """Engine or hardware changed: earlier streams say nothing about it. Benchmarks stay until they are taken again."""
        self.decode_tok_s.clear()
        self.first_output_ms.clear()
        self.density_factor.clear()

    @property
    def best(self) -> Benchmark | None:
        """The fastest join benchmark over all models."""
        return max(self.benchmarks.values(), key=lambda each: each.decode_tok_s, default=None)


def _window(windows: dict[str, MedianWindow], model: str) -> MedianWindow:
    return windows.get(model) or windows.setdefault(model, MedianWindow())
