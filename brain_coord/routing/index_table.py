"""What the index knows of each node whatever the model, as columns that a whole fleet can be reckoned with at once.

Every column is derived from one `NodeState` by the same rules as `node_router`; where the two could part, the state is kept
and the pure functions have the last word.
"""

from bisect import bisect_left, insort
from typing import Final

import numpy as np
import numpy.typing as npt

from brain_coord.routing import weights
from brain_coord.routing.inputs import ModelNeed, NodeRequest, NodeState, is_known
from brain_coord.routing.rejections import DEGRADED, DRAINING, NO_FREE_SLOT, NOT_BENCHMARKED, OFFLINE, rejection_bits

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_REGION: Final = -1
UNKNOWN_REGION: Final = -2
MUCH_VRAM_MIB: Final = 1 << 62
"""Stands for a node that reports no memory: it is not excluded by any requirement."""

_SPARE_REGIONS: Final = 64

_OWN_BITS: Final = OFFLINE | DRAINING | DEGRADED | NO_FREE_SLOT | NOT_BENCHMARKED
_ANY_REQUEST: Final = NodeRequest()
_ANY_MODEL: Final = ModelNeed("")


class NodeTable:
    """The columns. A node keeps its row until it is removed; rows of removed nodes are used again."""

    def __init__(self) -> None:
        self.states: list[NodeState | None] = []
        self.rows: dict[str, int] = {}
        self.bits = np.zeros(0, np.int64)
        """Rejections that depend on neither the model nor the request."""
        self.vram_mib = np.zeros(0, np.int64)
        self.region = np.zeros(0, np.int64)
        self.rtt_ms = np.zeros(0)
        """`inf` where it is not known."""
        self.latency = np.zeros(0)
        """The latency term without its two bonuses."""
        self.fixed = np.zeros(0)
        """Availability, reputation and the price of a node without an ask, weighted."""
        self.ask = np.zeros(0)
        """0 where there is none; `priced` tells."""
        self.priced = np.zeros(0, np.bool_)
        self._free: list[int] = []
        self._ids: list[str] = []
        self._regions: dict[str, int] = {}
        self._order = np.zeros(0, np.int64)
        self._rank: Ints | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, state: NodeState) -> int:
        """Write a node's row; returns its number."""
        row = self.rows.get(state.node_id)
        if row is None:
            row = self._new_row(state.node_id)
        self.states[row] = state
        self.bits[row] = rejection_bits(state, _ANY_REQUEST, _ANY_MODEL) & _OWN_BITS
        self.vram_mib[row] = MUCH_VRAM_MIB if state.reported_vram_mib is None else state.reported_vram_mib
        self.region[row] = self._code_of(state.region)
        rtt_ms = state.rtt_ms
        if is_known(rtt_ms):
            self.rtt_ms[row] = rtt_ms
            self.latency[row] = weights.RTT_SHARE * _unit(1 - rtt_ms / weights.RTT_CEILING_MS)
        else:
            self.rtt_ms[row] = np.inf
            self.latency[row] = weights.UNMEASURED_LATENCY
        ask = state.ask_usd_per_1m
        priced = is_known(ask)
        self.priced[row] = priced
        self.ask[row] = ask if priced else 0.0
        self.fixed[row] = (
            weights.AVAILABILITY_WEIGHT * _availability(state)
            + weights.REPUTATION_WEIGHT * _unit(state.reliability / 100)
            + weights.PRICE_WEIGHT * (1.0 if priced else weights.UNSET_PRICE)
        )
        return row

    def remove(self, node_id: str) -> int:
        """Forget a node; returns the row that it had."""
        row = self.rows.pop(node_id)
        at = bisect_left(self._ids, node_id)
        del self._ids[at]
        self._order = np.delete(self._order, at)
        self._rank = None
        self.states[row] = None
        self._free.append(row)
        return row

    def _new_row(self, node_id: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = len(self.states)
            self.states.append(None)
            if row == len(self.bits):
                self._grow(max(64, 2 * row))
        self.rows[node_id] = row
        at = bisect_left(self._ids, node_id)
        insort(self._ids, node_id)
        self._order = np.insert(self._order, at, row)
        self._rank = None
        return row

    def _grow(self, size: int) -> None:
        for name in ("bits", "vram_mib", "region", "rtt_ms", "latency", "fixed", "ask", "priced"):
            column = getattr(self, name)
            grown = np.zeros(size, column.dtype)
            grown[: len(column)] = column
            setattr(self, name, grown)

    @property
    def capacity(self) -> int:
        """How many rows there is room for."""
        return len(self.bits)

    @property
    def order(self) -> Ints:
        """The rows of all nodes, by ascending id."""
        return self._order

    @property
    def rank(self) -> Ints:
        """The place of each row in that order."""
        if self._rank is None or len(self._rank) < self.capacity:
            self._rank = np.zeros(self.capacity, np.int64)
            self._rank[self._order] = np.arange(len(self._order))
        return self._rank

    def _code_of(self, region: str | None) -> int:
        """The number of a node's region, a new one for a region that was not seen before."""
        if region is None:
            return NO_REGION
        if region not in self._regions and len(self._regions) >= 2 * len(self.rows) + _SPARE_REGIONS:
            # A node may name another region as often as it likes: let those go in which nobody is any more.
            self._regions.clear()
            for row, state in enumerate(self.states):
                if state is not None:
                    self.region[row] = self._code_of(state.region)
        return self._regions.setdefault(region, len(self._regions))

    def region_code(self, region: str) -> int:
        """The number that stands for a region in its column."""
        return self._regions.get(region, UNKNOWN_REGION)

    def state(self, row: int) -> NodeState:
        """The node in a row."""
        state = self.states[row]
        assert state is not None
        return state


def _availability(state: NodeState) -> float:
    if state.slots <= 0:
        return 0.0  # never eligible
    free_share = _unit(1 - state.active / state.slots)
    return free_share * _unit(1 - state.queue / (weights.QUEUE_DEPTH_PER_SLOT * state.slots))


def _unit(value: float) -> float:
    if 0.0 <= value <= 1.0:
        return value
    return 1.0 if value > 1.0 else 0.0
