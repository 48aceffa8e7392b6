"""Nodes as they are remembered between sessions: statements on one connection."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, delete, func, or_, select, update

from brain_coord.store import tables
from brain_coord.store.bulk import insert_rows
from brain_coord.store.records import Benchmark, NodeRecord, Outcome, Uptime
from brain_coord.store.upsert import upsert

_NODES = tables.nodes
_BENCHMARKS = tables.node_benchmarks
_OUTCOMES = tables.outcomes
_UPTIME = tables.node_uptime


def _columns(table: Table, record: type[Any]) -> list[Column[Any]]:
    return [table.c[field.name] for field in fields(record)]


_NODE = _columns(_NODES, NodeRecord)
_BENCHMARK = _columns(_BENCHMARKS, Benchmark)
_OUTCOME = [_OUTCOMES.c[name] for name in Outcome._fields]
_DAY = _columns(_UPTIME, Uptime)


def upsert_node(connection: Connection, seen: NodeRecord) -> NodeRecord:
    """Remember a node that joined; what the operator decided about it, and when it first came, stay as they were.

    Returns:
        the record as it is now.
    """
    upsert(connection, _NODES, asdict(seen), ["last_seen_s", "operator", "label", "region"])
    return NodeRecord(*connection.execute(select(*_NODE).where(_NODES.c.node_id == seen.node_id)).one())


def touch_nodes(connection: Connection, last_seen_s: dict[str, float]) -> None:
    """Set when nodes were last seen; those seen at one time in one statement."""
    by_time: dict[float, list[str]] = {}
    for node_id, at_s in last_seen_s.items():
        by_time.setdefault(at_s, []).append(node_id)
    for at_s, node_ids in by_time.items():
        connection.execute(update(_NODES).where(_NODES.c.node_id.in_(node_ids)).values(last_seen_s=at_s))


def get_node(connection: Connection, node_id: str) -> NodeRecord | None:
    """One node."""
    row = connection.execute(select(*_NODE).where(_NODES.c.node_id == node_id)).one_or_none()
    return None if row is None else NodeRecord(*row)


def list_nodes(connection: Connection) -> list[NodeRecord]:
    """All nodes by ascending id."""
    return [NodeRecord(*row) for row in connection.execute(select(*_NODE).order_by(_NODES.c.node_id))]


def set_ban(connection: Connection, node_id: str, reason: str | None) -> bool:
    """Ban a node for a reason, or lift its ban with `None`; `False` for an unknown node."""
    return _set(connection, node_id, banned_reason=reason)


def set_trust(connection: Connection, node_id: str, trusted: bool) -> bool:
    """Trust a node, or stop; `False` for an unknown node."""
    return _set(connection, node_id, trusted=trusted)


def set_drain(connection: Connection, node_id: str, draining: bool) -> bool:
    """Take a node out of service, or put it back; `False` for an unknown node."""
    return _set(connection, node_id, draining=draining)


def set_slots_borne(connection: Connection, node_id: str, slots: int | None) -> bool:
    """How many jobs at once a node was seen to bear; `False` for an unknown node."""
    return _set(connection, node_id, slots_borne=slots)


def _set(connection: Connection, node_id: str, **values: object) -> bool:
    return connection.execute(update(_NODES).where(_NODES.c.node_id == node_id).values(values)).rowcount == 1


def save_benchmark(connection: Connection, benchmark: Benchmark) -> None:
    """Keep the latest benchmark of a model on a node."""
    changed = ["decode_tok_s", "first_output_ms", "compute_class", "fingerprint", "measured_s"]
    upsert(connection, _BENCHMARKS, asdict(benchmark), changed)


def load_benchmarks(connection: Connection, node_id: str | None = None) -> list[Benchmark]:
    """The benchmarks of one node, or of all."""
    query = select(*_BENCHMARK).order_by(_BENCHMARKS.c.node_id, _BENCHMARKS.c.model)
    if node_id is not None:
        query = query.where(_BENCHMARKS.c.node_id == node_id)
    return [Benchmark(*row) for row in connection.execute(query)]


def add_outcomes(connection: Connection, outcomes: Sequence[Outcome]) -> None:
    """Record how work ended."""
    insert_rows(connection, _OUTCOMES, _OUTCOME, outcomes)


def load_outcomes(connection: Connection, node_id: str, since_s: float, limit: int = 200) -> list[Outcome]:
    """The latest outcomes of a node since a time, oldest first."""
    rows = connection.execute(
        select(*_OUTCOME)
        .where(_OUTCOMES.c.node_id == node_id, _OUTCOMES.c.at_s >= since_s)
        .order_by(_OUTCOMES.c.at_s.desc(), _OUTCOMES.c.outcome_id.desc())
        .limit(limit)
    ).all()
    return [Outcome(*row) for row in reversed(rows)]


def load_outcomes_of(connection: Connection, node_ids: Sequence[str], since_s: float) -> dict[str, list[Outcome]]:
    """The outcomes of some nodes since a time, each node's oldest first."""
    found: dict[str, list[Outcome]] = {node_id: [] for node_id in node_ids}
    rows = connection.execute(
        select(*_OUTCOME)
        .where(_OUTCOMES.c.node_id.in_(node_ids), _OUTCOMES.c.at_s >= since_s)
        .order_by(_OUTCOMES.c.node_id, _OUTCOMES.c.at_s, _OUTCOMES.c.outcome_id)
    )
    for row in rows:
        found[row[0]].append(Outcome(*row))
    return found


def add_uptime(connection: Connection, days: Sequence[Uptime]) -> None:
    """Add seconds to the days of nodes."""
    rows = [asdict(day) for day in days]
    if rows:
        upsert(connection, _UPTIME, rows, ["connected_s", "observed_s"], lambda old, new: old + new)


def load_uptime(connection: Connection, since_day: int, node_id: str | None = None) -> list[Uptime]:
    """The days since a day, of one node or of all, oldest first."""
    query = select(*_DAY).where(_UPTIME.c.day >= since_day).order_by(_UPTIME.c.node_id, _UPTIME.c.day)
    if node_id is not None:
        query = query.where(_UPTIME.c.node_id == node_id)
    return [Uptime(*row) for row in connection.execute(query)]


def forget_before(connection: Connection, before_s: float, most: int) -> int:
    """Delete up to `most` outcomes, and all uptime days, older than a time; returns how many outcomes went."""
    old = select(_OUTCOMES.c.outcome_id).where(_OUTCOMES.c.at_s < before_s).limit(most)
    gone = connection.execute(delete(_OUTCOMES).where(_OUTCOMES.c.outcome_id.in_(old.scalar_subquery()))).rowcount
    connection.execute(delete(_UPTIME).where(_UPTIME.c.day < int(before_s // 86_400)))
    return gone


def crowded(connection: Connection, most: int) -> list[str]:
    """Nodes with more outcomes than `most`."""
    counted = select(_OUTCOMES.c.node_id).group_by(_OUTCOMES.c.node_id).having(func.count() > most)
    return list(connection.execute(counted).scalars())


def forget_beyond(connection: Connection, node_id: str, kept: int, most: int) -> int:
    """Delete up to `most` of a node's outcomes that are older than its latest `kept`; returns how many went."""
    at_s, number = _OUTCOMES.c.at_s, _OUTCOMES.c.outcome_id
    own = _OUTCOMES.c.node_id == node_id
    newest_gone = connection.execute(
        select(at_s, number).where(own).order_by(at_s.desc(), number.desc()).offset(kept).limit(1)
    ).one_or_none()
    if newest_gone is None:
        return 0
    older = or_(at_s < newest_gone[0], and_(at_s == newest_gone[0], number <= newest_gone[1]))
    old = select(number).where(own, older).limit(most)
    return connection.execute(delete(_OUTCOMES).where(number.in_(old.scalar_subquery()))).rowcount
