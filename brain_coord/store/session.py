"""The store for a command of the shell: one connection, one transaction, no threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from brain_coord.store.database import connect, open_database
from brain_coord.store.schema import upgrade


@contextmanager
def session(data_dir: Path, url: str | None = None) -> Iterator[Connection]:
    """A transaction on the store of a data directory, made and upgraded as needed; a coordinator may run beside it.

    Raises:
        StoreError: the store cannot be opened or used.
    """
    database = open_database(data_dir, url, timeout_s=10.0, readers=1)
    try:
        upgrade(database.writer)
        with connect(database.writer) as connection:
            yield connection
    finally:
        database.close()
