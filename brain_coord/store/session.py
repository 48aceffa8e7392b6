"""The store for a command of the shell: one connection, one transaction, no threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from brain_coord.store.database import connect, open_database
from brain_coord.store.schema import upgrade

_PATIENCE_S = 10.0


@contextmanager
def session(data_dir: Path, url: str | None = None, *, write: bool = True) -> Iterator[Connection]:
    """A transaction on the store of a data directory, made and upgraded as needed; a coordinator may run beside it.

    With `write=False` it holds up nobody, however long it reads.

    Raises:
        StoreError: the store cannot be opened or used.
    """
    database = open_database(data_dir, url, timeout_s=_PATIENCE_S, readers=1)
    try:
        upgrade(database.writer)
        with connect(database.writer if write else database.readers) as connection:
            yield connection
    finally:
        database.close()
