"""`INSERT … ON CONFLICT`, which SQLAlchemy spells per dialect."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

Combine = Callable[[ColumnElement[Any], ColumnElement[Any]], ColumnElement[Any]]


def upsert(
    connection: Connection,
    table: Table,
    values: Mapping[str, Any] | list[dict[str, Any]],
    replace: list[str],
    combine: Combine = lambda _old, new: new,
) -> None:
    """Insert rows; where the primary key is there already, set the `replace` columns to `combine(old, new)`."""
    key = [column.name for column in table.primary_key.columns]
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(table)
    changes = {name: combine(table.c[name], statement.excluded[name]) for name in replace}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=changes), values)
