"""API keys: statements on one connection."""

import hmac

from sqlalchemy import Connection, insert, select, update

from brain_coord.store import tables
from brain_coord.store.records import ApiKey, Plan
from brain_coord.store.secrets import digest, new_secret

_KEYS = tables.api_keys
_RECORD = [_KEYS.c[name] for name in ("key_id", "prefix", "plan", "label", "created_s", "revoked_s")]


def create_key(connection: Connection, plan: Plan, label: str | None, now_s: float) -> tuple[ApiKey, str]:
    """A new key, and its text: shown now and never again."""
    secret = new_secret("k")
    key = ApiKey(secret.public_id, secret.prefix, plan, label, now_s)
    connection.execute(
        insert(_KEYS).values(
            key_id=key.key_id, sha256=secret.sha256, prefix=key.prefix, plan=plan, label=label, created_s=now_s
        )
    )
    return key, secret.text


def find_key(connection: Connection, secret: str) -> ApiKey | None:
    """The key with this text, also a revoked one."""
    wanted = digest(secret)
    row = connection.execute(select(_KEYS.c.sha256, *_RECORD).where(_KEYS.c.sha256 == wanted)).one_or_none()
    if row is None or not hmac.compare_digest(bytes(row[0]), wanted):
        return None
    return ApiKey(*row[1:])


def list_keys(connection: Connection) -> list[ApiKey]:
    """All keys, oldest first."""
    rows = connection.execute(select(*_RECORD).order_by(_KEYS.c.created_s, _KEYS.c.key_id))
    return [ApiKey(*row) for row in rows]


def revoke_key(connection: Connection, key_id: str, now_s: float) -> bool:
    """Revoke a key for good; `False` when there is none that is still good."""
    done = connection.execute(
        update(_KEYS).where(_KEYS.c.key_id == key_id, _KEYS.c.revoked_s.is_(None)).values(revoked_s=now_s)
    )
    return done.rowcount == 1
