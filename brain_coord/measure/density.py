"""How much text a token stands for, by model: what one node reports beside what its peers report for the same model.

A token count comes from the engine, so from the node; the text passed through our hands. Every honest node of a model uses
the same tokenizer, so over many answers all of them report about the same bytes a token. A node that reports more tokens
for its text than its peers do is credited with the speed that its text bears out at their density.
"""

from collections import deque
from collections.abc import Mapping, Set
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
"""Beyond so many nodes of a model the median is taken over all of them, or all that are trusted, and kept for so many
questions."""


@dataclass(slots=True)
class _Seen:
    answers: deque[tuple[int, int]] = field(default_factory=deque)
    tokens: int = 0
    text_bytes: int = 0
    bytes_per_token: float | None = None

    def add(self, tokens: int, text_bytes: int) -> None:
        all_tokens, all_bytes, answers = self.tokens + tokens, self.text_bytes + text_bytes, self.answers
        answers.append((tokens, text_bytes))
        if len(answers) > ANSWERS:
            old_tokens, old_bytes = answers.popleft()
            all_tokens -= old_tokens
            all_bytes -= old_bytes
        self.tokens, self.text_bytes = all_tokens, all_bytes
        self.bytes_per_token = all_bytes / all_tokens if all_tokens >= MIN_TOKENS else None


@dataclass(slots=True)
class TokenDensity:
    """Bytes a token, by model and node. Answers that customers asked for and benchmark prose are kept apart."""

    _seen: dict[tuple[str, Kind], dict[str, _Seen]] = field(default_factory=dict)
    _crowd: dict[tuple[str, Kind], tuple[int, float | None]] = field(default_factory=dict)

    def add(self, node_id: str, model: str, tokens: int, text_bytes: int, kind: Kind = "answers") -> None:
        """One completed answer: what the node reported and what passed."""
        if tokens > 0 and text_bytes > 0:
            seen = self._seen.setdefault((model, kind), {})
            (seen.get(node_id) or seen.setdefault(node_id, _Seen())).add(tokens, text_bytes)

    def factor(self, node_id: str, model: str, kind: Kind = "answers", trusted: Set[str] = frozenset()) -> float:
        """What a node's speed is to be multiplied with, 0 to 1: below 1 where it reports more tokens than its text bears."""
        seen = self._seen.get((model, kind))
        own = None if seen is None else seen.get(node_id)
        if seen is None or own is None or own.bytes_per_token is None:
            return 1.0
        if len(seen) > CROWD:
            reference = self._of_crowd(model, kind, trusted)
        elif len(seen) > 1:
            reference = _reference(seen, trusted, without=node_id)
        else:
            reference = None
        if reference is not None:
            return min(1.0, own.bytes_per_token / ((1 - TOLERANCE) * reference))
        return min(1.0, own.bytes_per_token / PROSE_BYTES_PER_TOKEN) if kind == "benchmark" else 1.0

    def _of_crowd(self, model: str, kind: Kind, trusted: Set[str]) -> float | None:
        """Among many nodes one's own value moves no median, and it need not be found anew for every answer."""
        left, value = self._crowd.get((model, kind), (0, None))
        if left == 0:
            left, value = CROWD_FOR, _reference(self._seen[model, kind], trusted)
        self._crowd[model, kind] = (left - 1, value)
        return value

    def forget(self, node_id: str) -> None:
        """The node changed its engine: what it reported before says nothing."""
        for seen in self._seen.values():
            seen.pop(node_id, None)


def _reference(seen: Mapping[str, _Seen], trusted: Set[str], without: str | None = None) -> float | None:
    """What the nodes come to but for one: the trusted ones alone where there are any; `None` with too few."""
    if trusted:
        names = seen.keys() & trusted
        known = [value for name in names if name != without and (value := seen[name].bytes_per_token) is not None]
        if known:
            return median(known)
    peers = [value for name, each in seen.items() if name != without and (value := each.bytes_per_token) is not None]
    least = MIN_PEERS if without is not None else MIN_PEERS + 1  # who is asked about is one of them then
    return median(peers) if len(peers) >= least else None
