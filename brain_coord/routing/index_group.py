"""One model in the index: the nodes that could take a request for it now, and how they compare."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from brain_coord.routing import weights
from brain_coord.routing.index_table import Bools, Floats, Ints, NodeTable
from brain_coord.routing.inputs import ModelNeed, NodeState
from brain_coord.routing.node_decision import NodeScore, Pool
from brain_coord.routing.node_router import speed_of

_NOT_A_MEMBER: Final = -1

_SPEED_WEIGHT: Final = weights.CAPABILITY_WEIGHT * (1 - weights.SPEED_FLOOR)
_PRICE_SLOPE: Final = weights.PRICE_WEIGHT * (1 - weights.PRICE_FLOOR)


@dataclass(frozen=True, slots=True)
class Field:
    """The eligible nodes of one request: their rows, the pool, and totals that are right but for their last bits."""

    rows: Ints
    totals: Floats
    pool: Pool
    first: dict[int, list[NodeScore]] = field(default_factory=dict)
    """The beginnings of the ranking that were worked out already, by length."""


class ModelGroup:
    """The nodes that serve one model and that nothing but a request's own wishes could keep from it."""

    def __init__(self, need: ModelNeed, table: NodeTable) -> None:
        self.need = need
        self._table = table
        self._place = np.full(table.capacity, _NOT_A_MEMBER, np.int64)
        self.serves = np.zeros(table.capacity, np.bool_)
        """By row, whether the node offers the model at all."""
        self.serving = 0
        """How many do."""
        self._rows = np.zeros(16, np.int64)
        self._speed = np.zeros(16)
        self._speed_known = np.zeros(16, np.bool_)
        self._speed_weight = np.zeros(16)
        self._loaded = np.zeros(16)
        self._count = 0
        self._plain: Field | None = None

    def __len__(self) -> int:
        return self._count

    def grow(self) -> None:
        """The table has more rows now."""
        size = self._table.capacity
        if size > len(self._place):
            self._place = np.concatenate([self._place, np.full(size - len(self._place), _NOT_A_MEMBER, np.int64)])
            self.serves = np.concatenate([self.serves, np.zeros(size - len(self.serves), np.bool_)])

    def put(self, row: int, state: NodeState) -> None:
        """The node in a row serves the model and has changed."""
        if not self.serves[row]:
            self.serves[row] = True
            self.serving += 1
        table = self._table
        if table.bits[row] or table.vram_mib[row] < self.need.min_vram_mib:
            self._leave(row)
            return
        place = int(self._place[row])
        if place == _NOT_A_MEMBER:
            place = self._count
            if place == len(self._rows):
                self._widen()
            self._count += 1
            self._place[row] = place
            self._rows[place] = row
        speed = speed_of(state, self.need)
        loaded = weights.LOADED_FACTOR if self.need.model_id in state.loaded else weights.NOT_LOADED_FACTOR
        floor = weights.SPEED_FLOOR
        if speed is None:
            self._speed[place], self._speed_known[place], self._speed_weight[place] = 0.0, False, 0.0
            floor += (1 - weights.SPEED_FLOOR) * weights.UNMEASURED_SPEED_RATIO
        else:
            self._speed[place], self._speed_known[place] = speed, True
            self._speed_weight[place] = _SPEED_WEIGHT * loaded
        self._loaded[place] = weights.CAPABILITY_WEIGHT * loaded * floor
        self._plain = None

    def leave(self, row: int) -> None:
        """The node in a row does not serve the model any more."""
        if self.serves[row]:
            self.serves[row] = False
            self.serving -= 1
        self._leave(row)

    def _leave(self, row: int) -> None:
        place = int(self._place[row])
        if place == _NOT_A_MEMBER:
            return
        self._count -= 1
        last = self._count
        if place != last:
            for column in (self._rows, self._speed, self._speed_known, self._speed_weight, self._loaded):
                column[place] = column[last]
            self._place[self._rows[place]] = place
        self._place[row] = _NOT_A_MEMBER
        self._plain = None

    def _widen(self) -> None:
        for name in ("_rows", "_speed", "_speed_known", "_speed_weight", "_loaded"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))

    def eligible(self, region: int | None, kept: Bools | None) -> Field:
        """The eligible nodes and their totals.

        Args:
            region: code of the region that is worth a bonus, `None` without one.
            kept: by row, the nodes that a request's own wishes leave over; `None` for all.
        """
        if region is None and kept is None:
            if self._plain is None:
                self._plain = self._field(None, None)
            return self._plain
        return self._field(region, kept)

    def _field(self, region: int | None, kept: Bools | None) -> Field:
        table, count = self._table, self._count
        rows = self._rows[:count]
        speed, speed_known = self._speed[:count], self._speed_known[:count]
        speed_weight, totals = self._speed_weight[:count], self._loaded[:count]
        if kept is not None:
            left = kept[rows]
            rows, speed, speed_known = rows[left], speed[left], speed_known[left]
            speed_weight, totals = speed_weight[left], totals[left]
        else:
            rows = rows.copy()
        if not len(rows):
            return Field(rows, np.zeros(0), Pool())
        rtt_ms = table.rtt_ms[rows]
        pool = Pool(_largest(speed, speed_known), _median(rtt_ms), _largest(table.ask[rows], table.priced[rows]))
        totals = totals + table.fixed[rows]
        if pool.max_tok_s:
            totals += speed_weight * (speed / pool.max_tok_s)
        latency = table.latency[rows]
        if pool.median_rtt_ms is not None:
            latency += weights.MEDIAN_BONUS * (rtt_ms <= pool.median_rtt_ms)
        if region is not None:
            latency += weights.REGION_BONUS * (table.region[rows] == region)
            np.minimum(latency, 1.0, out=latency)
        totals += weights.LATENCY_WEIGHT * latency
        if pool.highest_ask_usd_per_1m:
            totals -= _PRICE_SLOPE * (table.ask[rows] / pool.highest_ask_usd_per_1m)
        return Field(rows, totals, pool)


def _largest(values: Floats, known: Bools) -> float | None:
    """The largest known value; unknown ones stand as 0."""
    largest = float(values.max())
    return largest if largest > 0 or known.any() else None


def _median(values: Floats) -> float | None:
    """Of the finite values; by the same steps as `node_router`, so that it is the same number."""
    count = int(np.count_nonzero(values < np.inf))
    if not count:
        return None
    upper = count // 2
    if count % 2:
        return float(np.partition(values, upper)[upper])
    parts = np.partition(values, (upper - 1, upper))
    lower = float(parts[upper - 1])
    return max(lower, lower / 2 + float(parts[upper]) / 2)
