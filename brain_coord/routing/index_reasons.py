"""Why none of very many nodes can take a request: each distinct case once, with its count."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from brain_coord.routing.auto_router import ANY_REAL_MODEL
from brain_coord.routing.index_group import ModelGroup
from brain_coord.routing.index_table import Ints, NodeTable
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState, is_known
from brain_coord.routing.rejections import (
    ABOVE_BUDGET,
    NO_FREE_SLOT,
    NOT_SERVED,
    TOO_LITTLE_VRAM,
    WRONG_REGION,
    rejection_words,
)
from brain_coord.routing.vocabulary import Liveness

_CASES: Final = 2 * ABOVE_BUDGET
"""Every combination of rejections is a number below this."""


@dataclass(slots=True)
class Reasons:
    """Rejections counted by their words.

    Attributes:
        every: how many nodes each reason keeps away; one with two reasons counts under both.
        first: the same, by the first reason of each node.
        worth_waiting: whether a free slot is all that one of them lacks.
    """

    every: Counter[str] = field(default_factory=Counter)
    first: Counter[str] = field(default_factory=Counter)
    worth_waiting: bool = False

    def add(self, bits: int, vram_mib: int | None, count: int, request: NodeRequest, need: ModelNeed) -> None:
        """`count` nodes were rejected alike."""
        words = words_of(bits, vram_mib, request, need)
        self.first[words[0]] += count
        self.every.update(dict.fromkeys(words, count))
        self.worth_waiting = self.worth_waiting or bits == NO_FREE_SLOT


def words_of(bits: int, vram_mib: int | None, request: NodeRequest, need: ModelNeed) -> list[str]:
    """Rejections in words, for any node that reports this much memory."""
    node = NodeState("", Liveness.OFFLINE, 0, reported_vram_mib=vram_mib)
    return list(rejection_words(bits, node, request, need))


def model_reasons(rows: Ints, table: NodeTable, group: ModelGroup, request: NodeRequest) -> Reasons:
    """Why the nodes in these rows, none of them eligible, cannot take a request for one model."""
    reasons = Reasons()
    bits = _wish_bits(rows, table, request) | _model_bits(rows, table, group)
    for case, vram_mib, count in _cases(bits, table.vram_mib[rows]):
        reasons.add(case, vram_mib, count, request, group.need)
    return reasons


@dataclass(frozen=True, slots=True)
class Nearest:
    """Of each node the rejections for the real model that it comes nearest to, by ascending node id."""

    bits: Ints
    model: Ints
    """Index of that model in the catalog's real models; -1 for nodes that serve none of them."""


def nearest(table: NodeTable, groups: Sequence[ModelGroup], request: NodeRequest) -> Nearest:
    """What is missing at each node, none of which can serve any real model."""
    rows = table.order
    first = np.full(len(rows), -1, np.int64)
    fitting = np.full(len(rows), -1, np.int64)
    vram_mib = table.vram_mib[rows]
    for number in reversed(range(len(groups))):  # so that the earlier model of the catalog has the last word
        serves = groups[number].serves[rows]
        first[serves] = number
        fitting[serves & (vram_mib >= groups[number].need.min_vram_mib)] = number
    bits = _wish_bits(rows, table, request) | table.bits[rows]
    bits |= NOT_SERVED * (first < 0)
    bits |= TOO_LITTLE_VRAM * ((first >= 0) & (fitting < 0))
    return Nearest(bits, np.where(fitting >= 0, fitting, first))


def nearest_words(
    found: Nearest, at: int, table: NodeTable, groups: Sequence[ModelGroup], request: NodeRequest
) -> tuple[str, tuple[str, ...]]:
    """Id and reasons of the node at one place of the order."""
    node = table.state(int(table.order[at]))
    words = words_of(int(found.bits[at]), node.reported_vram_mib, request, _need(int(found.model[at]), groups))
    return node.node_id, tuple(words)


def nearest_reasons(
    found: Nearest, start: int, table: NodeTable, groups: Sequence[ModelGroup], request: NodeRequest
) -> Reasons:
    """The reasons of all nodes from one place of the order on."""
    reasons = Reasons()
    vram_mib = table.vram_mib[table.order[start:]]
    bits, model = found.bits[start:], found.model[start:]
    for number in np.unique(model).tolist():
        those = model == number
        for case, memory_mib, count in _cases(bits[those], vram_mib[those]):
            reasons.add(case, memory_mib, count, request, _need(number, groups))
    return reasons


def _need(number: int, groups: Sequence[ModelGroup]) -> ModelNeed:
    return ANY_REAL_MODEL if number < 0 else groups[number].need


def _wish_bits(rows: Ints, table: NodeTable, request: NodeRequest) -> Ints:
    """What the request's own wishes keep away."""
    bits = np.zeros(len(rows), np.int64)
    if request.require_region and request.region is not None:
        bits |= WRONG_REGION * (table.region[rows] != table.region_code(request.region))
    if is_known(request.max_ask_usd_per_1m):
        bits |= ABOVE_BUDGET * (table.priced[rows] & (table.ask[rows] > request.max_ask_usd_per_1m))
    return bits


def _model_bits(rows: Ints, table: NodeTable, group: ModelGroup) -> Ints:
    bits = table.bits[rows] | NOT_SERVED * ~group.serves[rows]
    return bits | TOO_LITTLE_VRAM * (table.vram_mib[rows] < group.need.min_vram_mib)


def _cases(bits: Ints, vram_mib: Ints) -> Iterator[tuple[int, int | None, int]]:
    """Rejections, the reported memory where it is one of them, and how many nodes share both."""
    short = (bits & TOO_LITTLE_VRAM) != 0
    for case, count in enumerate(np.bincount(bits[~short], minlength=1).tolist()):
        if count:
            yield case, None, count
    if short.any():
        keys, counts = np.unique(vram_mib[short] * _CASES + bits[short], return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            yield key % _CASES, key // _CASES, count
