"""Inserting many rows in one statement.

Each row of the driver's `executemany` lets go of the GIL and waits to get it back: with a busy event loop beside it
200 rows took 700 ms, and 26 ms as one statement.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Column, Connection, Table

_PARAMETERS = 24_000
"""Below SQLite's 32,766 and PostgreSQL's 65,535 parameters a statement."""

Row = tuple[Any, ...]
Insertion = tuple[str, Row]
"""A statement and its parameters."""


def insert_rows(connection: Connection, table: Table, columns: Sequence[Column[Any]], rows: Sequence[Row]) -> None:
    """Insert rows whose values stand in the order of `columns`, as the driver takes them."""
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    for statement, parameters in insertions(table, columns, rows, mark):
        connection.exec_driver_sql(statement, parameters)


def insertions(
    table: Table, columns: Sequence[Column[Any]], rows: Sequence[Row], mark: str = "?"
) -> Iterator[Insertion]:
    """The statements that insert rows, with their parameters; as few as the databases take.

    Args:
        table: where to.
        columns: of which the values stand in `rows`.
        rows: the values.
        mark: how the driver marks a parameter.
    """
    names = tuple(column.name for column in columns)
    most = _PARAMETERS // len(names)
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        yield _statement(table.name, names, len(some), mark), tuple(chain.from_iterable(some))


@lru_cache(maxsize=1024)
def _statement(table: str, names: tuple[str, ...], rows: int, mark: str) -> str:
    row = f"({','.join([mark] * len(names))})"
    return f"INSERT INTO {table} ({','.join(names)}) VALUES {','.join([row] * rows)}"  # noqa: S608  (own names only)
