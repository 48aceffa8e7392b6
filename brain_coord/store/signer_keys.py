"""The published history of signing keys: statements on one connection."""

from dataclasses import asdict, fields

from sqlalchemy import Connection, insert, select, update

from brain_coord.receipts.history import SignerKey
from brain_coord.store import tables

_KEYS = tables.signer_keys
_RECORD = [_KEYS.c[field.name] for field in fields(SignerKey)]


def get_signer_key(connection: Connection, key_id: str) -> SignerKey | None:
    """The entry of one key."""
    row = connection.execute(select(*_RECORD).where(_KEYS.c.key_id == key_id)).one_or_none()
    return None if row is None else SignerKey(*row)


def list_signer_keys(connection: Connection) -> list[SignerKey]:
    """The keys of all chains, those of a chain together, by the time of their making."""
    query = select(*_RECORD).order_by(_KEYS.c.chain, _KEYS.c.from_s)
    return [SignerKey(*row) for row in connection.execute(query)]


def add_signer_key(connection: Connection, key: SignerKey) -> None:
    """Add a key; the one that endorsed it ends where it begins."""
    connection.execute(insert(_KEYS).values(asdict(key)))
    if key.endorsed_by is not None:
        connection.execute(update(_KEYS).where(_KEYS.c.key_id == key.endorsed_by).values(until_s=key.from_s))
