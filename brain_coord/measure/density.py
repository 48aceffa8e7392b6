"""How much text a token stands for, by model: what one node reports beside what its peers report for the same model.

A token count comes from the engine, so from the node; the text passed through our hands. Every honest node of a model uses
the same tokenizer, so over many answers all of them report about the same bytes a token. A node that reports more tokens
for its text than its peers do is credited with the speed that its text bears out at their density.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

Kind = Literal["benchmark", "answers"]

ANSWERS: Final = 50
"""Recent answers of one node and model that count."""

MIN_TOKENS: Final = 64
"""A node that was seen with fewer tokens than this says nothing about density yet."""

MIN_PEERS: Final = 2
"""So many other nodes have to agree before any node is measured by them; one trusted node is enough."""

TOLERANCE: Final = 0.05
"""Texts differ; within this nothing is taken off."""

PROSE_BYTES_PER_TOKEN: Final = 3.0
"""English prose holds at least so many bytes a token with every tokenizer of the catalog (they come out at 3.9 to 4.7):
the bound for a benchmark of which there is nothing yet to compare with."""


CROWD: Final = 16
CROWD_FOR: Final = 64
"""Beyond so many nodes of a model the median is taken over all of them, and kept for so many questions."""


@dataclass(slots=True)
class _Seen:
    answers: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=ANSWERS))
    tokens: int = 0
    text_bytes: int = 0

    def add(self, tokens: int, text_bytes: int) -> None:
        if len(self.answers) == ANSWERS:
            old = self.answers[0]
            self.tokens -= old[0]
            self.text_bytes -= old[1]
        self.answers.append((tokens, text_bytes))
        self.tokens += tokens
        self.text_bytes += text_bytes

    @property
    def bytes_per_token(self) -> float | None:
        return self.text_bytes / self.tokens if self.tokens >= MIN_TOKENS else None


@dataclass(slots=True)
class TokenDensity:
    """Bytes a token, by model and node. Answers that customers asked for and benchmark prose are kept apart."""

    _seen: dict[tuple[str, Kind], dict[str, _Seen]] = field(default_factory=dict)
    _crowd: dict[tuple[str, Kind], tuple[int, float | None]] = field(default_factory=dict)

    def add(self, node_id: str, model: str, tokens: int, text_bytes: int, kind: Kind = "answers") -> None:
        """One completed answer: what the node reported and what passed."""
        if tokens > 0 and text_bytes > 0:
            self._seen.setdefault((model, kind), {}).setdefault(node_id, _Seen()).add(tokens, text_bytes)

    def own(self, node_id: str, model: str, kind: Kind = "answers") -> float | None:
        """What a node's answers of a model come to."""
        seen = self._seen.get((model, kind), {}).get(node_id)
        return None if seen is None else seen.bytes_per_token

    def reference(self, node_id: str, model: str, kind: Kind = "answers", trusted: Iterable[str] = ()) -> float | None:
        """What its peers come to: the trusted ones alone where there are any; `None` with too few."""
        others = self._seen.get((model, kind), {})
        known = [value for name in trusted if name != node_id and (value := self.own(name, model, kind)) is not None]
        if known:
            return median(known)
        if len(others) > CROWD:
            return self._median_of_all(model, kind)
        peers = [
            value for name, seen in others.items() if name != node_id and (value := seen.bytes_per_token) is not None
        ]
        return median(peers) if len(peers) >= MIN_PEERS else None

    def _median_of_all(self, model: str, kind: Kind) -> float | None:
        """Among many nodes one's own value moves no median, and it need not be found anew for every answer."""
        left, value = self._crowd.get((model, kind), (0, None))
        if left == 0:
            known = [each.bytes_per_token for each in self._seen[model, kind].values()]
            peers = [each for each in known if each is not None]
            left, value = CROWD_FOR, median(peers) if len(peers) > MIN_PEERS else None
        self._crowd[model, kind] = (left - 1, value)
        return value

    def factor(self, node_id: str, model: str, kind: Kind = "answers", trusted: Iterable[str] = ()) -> float:
        """What a node's speed is to be multiplied with, 0 to 1: below 1 where it reports more tokens than its text bears."""
        own = self.own(node_id, model, kind)
        if own is None:
            return 1.0
        reference = self.reference(node_id, model, kind, trusted)
        if reference is None:
            reference = PROSE_BYTES_PER_TOKEN if kind == "benchmark" else None
            return 1.0 if reference is None else min(1.0, own / reference)
        return min(1.0, own / ((1 - TOLERANCE) * reference))

    def forget(self, node_id: str) -> None:
        """The node changed its engine: what it reported before says nothing."""
        for seen in self._seen.values():
            seen.pop(node_id, None)
