"""Inserting many rows in one statement.

Each row of the driver's `executemany` lets go of the GIL and waits to get it back: with a busy event loop beside it
200 rows took 700 ms, and 26 ms as one statement.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Column, Connection, Table

_PARAMETERS = 24_000
"""Below SQLite's 32,766 and PostgreSQL's 65,535 parameters a statement."""

Row = tuple[Any, ...]


def insert_rows(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Sequence[Row]) -> None:
    """Insert rows whose values stand in the order of `columns`, as the driver takes them."""
    if not rows:
        return
    names = tuple(column.name for column in columns)
    most = _PARAMETERS // len(names)
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        statement = _statement(table.name, names, len(some), mark)
        connection.exec_driver_sql(statement, tuple(chain.from_iterable(some)))


@lru_cache(maxsize=1024)
def _statement(table: str, names: tuple[str, ...], rows: int, mark: str) -> str:
    row = f"({','.join([mark] * len(names))})"
    return f"INSERT INTO {table} ({','.join(names)}) VALUES {','.join([row] * rows)}"  # noqa: S608  (own names only)
