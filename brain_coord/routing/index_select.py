"""The first few of very many nodes, exactly as the pure router would rank them."""

from typing import Final

import numpy as np

from brain_coord.routing.index_group import Field
from brain_coord.routing.index_table import Floats, Ints, NodeTable
from brain_coord.routing.inputs import ModelNeed, NodeRequest
from brain_coord.routing.node_decision import NodeScore
from brain_coord.routing.node_router import rank, score_node
from brain_coord.routing.weights import SCORE_DECIMALS

SLACK: Final = 2 * 10.0**-SCORE_DECIMALS
"""Two totals nearer than this may change places when they are rounded, or fall together so that the id decides."""

FEW: Final = 48
"""Up to here every candidate is scored by the pure function; beyond, ties are first told apart by columns."""

_UNITS: Final = 10.0**SCORE_DECIMALS
_PLACES: Final = 1 << 24
"""More than there are nodes: a rounded total and a place in the order of ids fit into one integer."""


def best(field: Field, count: int, table: NodeTable, request: NodeRequest, need: ModelNeed) -> list[NodeScore]:
    """The first `count` of the ranking."""
    if (known := field.first.get(count)) is not None:
        return known
    rows, totals = field.rows, field.totals
    if len(rows) > count:
        least = totals.max() if count == 1 else np.partition(totals, len(totals) - count)[len(totals) - count]
        near = np.flatnonzero(totals >= least - SLACK)
        rows = rows[near]
        if len(rows) > FEW:
            rows = _told_apart(rows, totals[near], count, field, table, request, need)
    scores = [score_node(table.state(row), request, need, field.pool) for row in rows.tolist()]
    scores.sort(key=rank)
    field.first[count] = scores[:count]
    return field.first[count]


def _told_apart(
    rows: Ints, totals: Floats, count: int, field: Field, table: NodeTable, request: NodeRequest, need: ModelNeed
) -> Ints:
    """The `count` first of many candidates that lie within the slack of each other."""
    units = totals * _UNITS
    rounded = np.rint(units).astype(np.int64)
    # Next to a half, the column's last bits would decide which way it is rounded: there the pure function does.
    doubtful = np.flatnonzero(np.abs(units - np.floor(units) - 0.5) < 1e-3)
    known: dict[tuple[object, ...], int] = {}
    for at in doubtful.tolist():
        node = table.state(int(rows[at]))
        same = (node.slots, node.active, node.queue, node.rtt_ms, node.reliability, node.region, node.ask_usd_per_1m)
        key = (*same, need.model_id in node.loaded, node.tok_s.get(need.model_id), node.benchmark_tok_s)
        if key not in known:
            known[key] = round(score_node(node, request, need, field.pool).total * _UNITS)
        rounded[at] = known[key]
    keys = rounded * _PLACES - table.rank[rows]
    return rows[np.argpartition(keys, len(keys) - count)[len(keys) - count :]]
