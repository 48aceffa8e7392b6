"""Browser tabs as they are remembered between sessions: statements on one connection."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, delete, select, update

from brain_coord.store import tables
from brain_coord.store.records import TabRecord
from brain_coord.store.upsert import upsert

_TABS = tables.tabs
_TAB = [_TABS.c[name] for name in TabRecord.__dataclass_fields__]
_CHANGED = [column.name for column in _TAB if column.name not in ("tab_id", "first_seen_s", "banned_reason")]


def save_tabs(connection: Connection, seen: Sequence[TabRecord]) -> None:
    """Remember tabs as they are now; when each first came, and what the operator decided, stay as they were."""
    if seen:
        upsert(connection, _TABS, [asdict(tab) for tab in seen], _CHANGED)


def get_tab(connection: Connection, tab_id: str) -> TabRecord | None:
    """One tab."""
    row = connection.execute(select(*_TAB).where(_TABS.c.tab_id == tab_id)).one_or_none()
    return None if row is None else TabRecord(*row)


def list_tabs(connection: Connection, limit: int) -> list[TabRecord]:
    """The tabs seen last, newest first."""
    query = select(*_TAB).order_by(_TABS.c.last_seen_s.desc(), _TABS.c.tab_id).limit(limit)
    return [TabRecord(*row) for row in connection.execute(query)]


def ban_tab(connection: Connection, tab_id: str, reason: str | None, now_s: float) -> None:
    """Ban a tab for a reason, seen before or not, or lift its ban with `None`."""
    changed = update(_TABS).where(_TABS.c.tab_id == tab_id).values(banned_reason=reason)
    if connection.execute(changed).rowcount == 0:
        fresh = TabRecord(tab_id, first_seen_s=now_s, last_seen_s=now_s, banned_reason=reason)
        connection.execute(_TABS.insert(), asdict(fresh))


def banned_tabs(connection: Connection) -> dict[str, str]:
    """Every banned tab, with the reason."""
    query = select(_TABS.c.tab_id, _TABS.c.banned_reason).where(_TABS.c.banned_reason.is_not(None))
    return {row.tab_id: row.banned_reason for row in connection.execute(query)}


def forget_tabs(connection: Connection, before_s: float, most: int) -> int:
    """Delete up to `most` tabs that were last seen before a time and are not banned; returns how many went."""
    old = select(_TABS.c.tab_id).where(_TABS.c.last_seen_s < before_s, _TABS.c.banned_reason.is_(None)).limit(most)
    return connection.execute(delete(_TABS).where(_TABS.c.tab_id.in_(old.scalar_subquery()))).rowcount
