"""Receipts and checkpoints of pruned prefixes: statements on one connection."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from sqlalchemy import Connection, and_, delete, func, select, tuple_

from brain_coord.receipts.chain import ChainHead, Sealed, Unsealed
from brain_coord.store import tables
from brain_coord.store.bulk import Insertion, Row, insert_rows, insertions
from brain_coord.store.records import Checkpoint
from brain_coord.store.upsert import upsert

ALIKE_CHARS: Final = 11
"""The clock's part of an id: fewer would take in all receipts of many hours."""
ALIKE: Final = 100
NEWEST: Final = 2000

_RECEIPTS = tables.receipts
_POINTS = tables.receipt_checkpoints
_COLUMNS = list(_RECEIPTS.columns)
_SEALED = [_RECEIPTS.c[name] for name in Sealed._fields]
_POINT = [_POINTS.c[field.name] for field in fields(Checkpoint)]
_LINK = [_RECEIPTS.c[column.name] for column in _POINT if column.name != "pruned_s"]


def insert_receipts(connection: Connection, sealed: Sequence[tuple[Unsealed, Sealed]]) -> None:
    """Append sealed receipts to their chain."""
    insert_rows(connection, _RECEIPTS, _COLUMNS, [_row(*each) for each in sealed])


def sqlite_insertions(sealed: Sequence[tuple[Unsealed, Sealed]]) -> list[Insertion]:
    """The statements of `insert_receipts`, for SQLite's own driver."""
    return list(insertions(_RECEIPTS, _COLUMNS, [_row(*each) for each in sealed]))


def _row(receipt: Unsealed, s: Sealed) -> Row:
    return (
        s.chain,
        s.seq,
        receipt.receipt_id,
        receipt.key_id,
        receipt.node_id,
        receipt.created_s,
        s.hash,
        s.prev,
        s.path,
        s.public_key,
        s.signature,
        s.body,
    )


def chain_head(connection: Connection, chain: str) -> ChainHead:
    """Where a chain ends in the database; a chain that was pruned to nothing ends at its checkpoint."""
    last = connection.execute(
        select(_RECEIPTS.c.seq, _RECEIPTS.c.hash)
        .where(_RECEIPTS.c.chain == chain)
        .order_by(_RECEIPTS.c.seq.desc())
        .limit(1)
    ).one_or_none()
    if last is None:
        last = connection.execute(select(_POINTS.c.seq, _POINTS.c.hash).where(_POINTS.c.chain == chain)).one_or_none()
    return ChainHead(chain) if last is None else ChainHead(chain, last[0], bytes(last[1]))


def chains(connection: Connection) -> list[str]:
    """The names of all chains that have receipts, or had some before they were pruned."""
    kept, pruned = select(_RECEIPTS.c.chain).distinct(), select(_POINTS.c.chain)
    return sorted({*connection.execute(kept).scalars(), *connection.execute(pruned).scalars()})


def link_hash(connection: Connection, chain: str, seq: int) -> bytes | None:
    """The hash of one link."""
    found = connection.execute(
        select(_RECEIPTS.c.hash).where(_RECEIPTS.c.chain == chain, _RECEIPTS.c.seq == seq)
    ).scalar()
    return None if found is None else bytes(found)


def receipt_ids_like(connection: Connection, typed: str) -> list[str]:
    """Ids that somebody may have meant: those that begin alike, and the newest."""
    column = _RECEIPTS.c.receipt_id
    alike = select(column).where(column.startswith(typed[:ALIKE_CHARS], autoescape=True)).limit(ALIKE)
    newest = select(column).order_by(_RECEIPTS.c.created_s.desc()).limit(NEWEST)
    return [*connection.execute(alike).scalars(), *connection.execute(newest).scalars()]


def get_receipt(connection: Connection, receipt_id: str) -> Sealed | None:
    """The receipt with an id."""
    row = connection.execute(select(*_SEALED).where(_RECEIPTS.c.receipt_id == receipt_id).limit(1)).one_or_none()
    return None if row is None else _sealed(row)


def page_of_receipts(
    connection: Connection,
    *,
    after: tuple[str, int] = ("", 0),
    key_id: str | None = None,
    chain: str | None = None,
    from_s: float | None = None,
    to_s: float | None = None,
    limit: int = 500,
) -> list[Sealed]:
    """The next receipts after (chain, seq), in chain order; all filters given must hold (`to_s` is exclusive)."""
    # Compared so that both databases begin in the index where the last page ended, not at its start.
    if chain is None:
        wanted = [tuple_(_RECEIPTS.c.chain, _RECEIPTS.c.seq) > after]
    else:
        wanted = [_RECEIPTS.c.chain == chain, _RECEIPTS.c.seq > after[1]]
    if key_id is not None:
        wanted.append(_RECEIPTS.c.key_id == key_id)
    if from_s is not None:
        wanted.append(_RECEIPTS.c.created_s >= from_s)
    if to_s is not None:
        wanted.append(_RECEIPTS.c.created_s < to_s)
    query = select(*_SEALED).where(*wanted).order_by(_RECEIPTS.c.chain, _RECEIPTS.c.seq).limit(limit)
    return [_sealed(row) for row in connection.execute(query)]


def recent_receipts(connection: Connection, limit: int = 50) -> list[Sealed]:
    """The latest receipts of all chains, newest first."""
    heads = select(_RECEIPTS.c.chain, func.max(_RECEIPTS.c.seq).label("seq")).group_by(_RECEIPTS.c.chain)
    found = []
    for chain, seq in connection.execute(heads).all():
        query = (
            select(_RECEIPTS.c.created_s, *_SEALED)
            .where(_RECEIPTS.c.chain == chain, _RECEIPTS.c.seq > seq - limit)
            .order_by(_RECEIPTS.c.seq.desc())
        )
        found += [(row[0], _sealed(row[1:])) for row in connection.execute(query)]
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [sealed for _, sealed in found[:limit]]


def prune_receipts(connection: Connection, chain: str, before_s: float, now_s: float, most: int) -> int:
    """Delete up to `most` links from the start of a chain, up to the first made at or after `before_s`.

    The last one deleted stays as a checkpoint without its body, so that the first link kept still continues from a
    hash that was signed. Returns how many were deleted.
    """
    first = connection.execute(select(func.min(_RECEIPTS.c.seq)).where(_RECEIPTS.c.chain == chain)).scalar()
    if first is None:
        return 0
    within = and_(_RECEIPTS.c.chain == chain, _RECEIPTS.c.seq < first + most)
    stop = connection.execute(
        select(func.min(_RECEIPTS.c.seq)).where(within, _RECEIPTS.c.created_s >= before_s)
    ).scalar()
    last_seq = (first + most if stop is None else stop) - 1
    last = connection.execute(
        select(*_LINK)
        .where(_RECEIPTS.c.chain == chain, _RECEIPTS.c.seq <= last_seq)
        .order_by(_RECEIPTS.c.seq.desc())
        .limit(1)
    ).one_or_none()
    if last is None:
        return 0
    point = Checkpoint(*[*last, now_s])
    upsert(connection, _POINTS, asdict(point), [column.name for column in _POINT[1:]])
    return connection.execute(
        delete(_RECEIPTS).where(_RECEIPTS.c.chain == chain, _RECEIPTS.c.seq <= point.seq)
    ).rowcount


def get_checkpoint(connection: Connection, chain: str) -> Checkpoint | None:
    """What is left of the pruned start of a chain."""
    row = connection.execute(select(*_POINT).where(_POINTS.c.chain == chain)).one_or_none()
    return None if row is None else Checkpoint(*row)


def _sealed(row: Sequence[Any]) -> Sealed:
    return Sealed(*row)
