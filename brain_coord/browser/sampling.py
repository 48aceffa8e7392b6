"""How the next token is drawn from the best logits of the last stage: temperature, top-p, top-k, seed. Pure."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

TOP: Final = 64
"""So many of the best tokens come from a tab. Drawing is among them, as with a top-k of 64."""

GREEDY_BELOW: Final = 1e-5
"""Temperatures below this mean the best token; dividing by them would leave the numbers that a double holds."""


@dataclass(frozen=True, slots=True)
class Top:
    """The best tokens of one position, best first."""

    tokens: NDArray[np.uint32]
    logits: NDArray[np.float32]


@dataclass(slots=True)
class Sampler:
    """One answer's draws; the same seed gives the same answer from the same logits."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    top_k: int = TOP
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def draw(self, top: Top) -> int:
        """The next token."""
        if self.temperature < GREEDY_BELOW:
            best = top.tokens[top.logits == top.logits.max()]
            return int(best.min())
        # A tab promised that order; nothing here stands on its word.
        order = np.argsort(-top.logits, kind="stable")[: self.top_k]
        scaled = top.logits[order].astype(np.float64) / self.temperature
        shares = np.exp(scaled - scaled[0])
        shares /= shares.sum()
        if self.top_p < 1.0:
            # The smallest set of the likeliest that reaches top-p; the first is always in it.
            before = np.cumsum(shares) - shares
            before[0] = -1.0
            shares = np.where(before < self.top_p, shares, 0.0)
            shares /= shares.sum()
        place = int(np.searchsorted(np.cumsum(shares), self._rng.random(), side="right"))
        return int(top.tokens[order[min(place, len(order) - 1)]])
