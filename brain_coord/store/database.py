"""Opening a database: SQLite embedded in the data directory, or PostgreSQL by URL."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from brain_coord.store.errors import StoreError, cannot_be_used, refuses, unavailable
from brain_node.contract.secret_file import give_to_service

DATABASE_FILE = "coord.db"
OWN_NAMES = frozenset(
    {DATABASE_FILE, "signing.key", "config.toml", "coord.lock", "operator.json", "browser-models", "receipts.jsonl"}
)
"""Names by which a data directory, or its spool, is known."""


@dataclass(frozen=True, slots=True)
class Database:
    """Two pools on one database: one connection for the writer, a few for readers."""

    writer: Engine
    readers: Engine
    embedded: bool
    """SQLite in the data directory, as opposed to a server that other coordinators share."""

    def close(self) -> None:
        """Close all pooled connections."""
        self.writer.dispose()
        self.readers.dispose()


def open_database(data_dir: Path, url: str | None = None, *, timeout_s: float = 3.0, readers: int = 4) -> Database:
    """Open the database of a data directory, or the PostgreSQL database at `url`; connects lazily.

    Args:
        data_dir: made with mode 0700 when it is missing.
        url: `postgresql://…`; `None` for SQLite in `data_dir`.
        timeout_s: how long a connect, a statement or a wait for a lock may take.
        readers: how many reads may run at once.

    Raises:
        StoreError: `database_url` for a URL that is not understood, `data_dir` for a directory that cannot be used.
    """
    make_private_dir(data_dir)
    if url is None:
        path = data_dir / DATABASE_FILE
        _make_private_file(path)
        return Database(
            _sqlite(path, timeout_s, 1, begin="BEGIN IMMEDIATE"), _sqlite(path, timeout_s, readers), embedded=True
        )
    parsed = postgres_url(url)
    return Database(_postgres(parsed, timeout_s, 1), _postgres(parsed, timeout_s, readers), embedded=False)


def make_private_dir(path: Path) -> None:
    """Make a directory with mode 0700, or tighten one that is empty or a coordinator's.

    Raises:
        StoreError: `data_dir`: it cannot be used, or belongs to something else, from which nobody must be shut out.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o077:
            names = {each.name for each in path.iterdir()} - {"lost+found"}  # which a volume of its own begins with
            if names and names.isdisjoint(OWN_NAMES):
                raise StoreError(
                    "data_dir",
                    f"the directory {path} is open to others and holds what is not a coordinator's",
                    "Name an empty one with --data-dir; or, if it is the right one, close it to others first (chmod 700)",
                )
            path.chmod(0o700)
    except OSError as error:
        raise cannot_be_used(f"the data directory {path}", error) from None


def _make_private_file(path: Path) -> None:
    # SQLite would make it 0644 and only then could it be tightened; its -wal and -shm files copy the mode of this one.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
            give_to_service(descriptor, path.parent)
        finally:
            os.close(descriptor)
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).chmod(0o600)
    except OSError as error:
        raise cannot_be_used(f"the database file {path}", error) from None


def _sqlite(path: Path, timeout_s: float, size: int, begin: str = "BEGIN") -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=timeout_s,
        # Statement parsing is a third of a small commit; the batch sizes in use are more than the default 128.
        connect_args={"timeout": timeout_s, "check_same_thread": False, "cached_statements": 512},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver's own BEGIN comes too late: a reader would be upgraded, and fail
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")  # with NORMAL a power cut may take acknowledged receipts along
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.connection.driver_connection.execute(begin)  # type: ignore[union-attr]  # there is one once it begins

    return engine


def postgres_url(url: str) -> URL:
    """A URL as it is connected to.

    Raises:
        StoreError: `database_url`.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    # An @ that was left as it is in the password would make its end a host, which errors name and /readyz shows.
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "postgres") or "@" in (parsed.host or ""):
        raise _not_understood()
    return parsed.set(drivername="postgresql+psycopg")


def _not_understood() -> StoreError:
    """Without a word of the URL: what is wrong with it may be a piece of the password."""
    return StoreError(
        "database_url",
        "the database URL is not understood",
        "Give one of the form postgresql://user:password@host/name, with %40 for an @ in the password and %25 for a %, "
        "or none for SQLite in the data directory",
    )


def _postgres(url: URL, timeout_s: float, size: int) -> Engine:
    limit_ms = int(timeout_s * 1000)
    try:
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",  # stricter by default, a server would refuse writes that come at once
            pool_size=size,
            max_overflow=0,
            pool_timeout=timeout_s,
            connect_args={
                "connect_timeout": max(2, round(timeout_s)),  # libpq takes less than 2 s as 2
                "tcp_user_timeout": limit_ms,
                "options": f"-c statement_timeout={limit_ms} -c lock_timeout={limit_ms} -c synchronous_commit=on",
                "application_name": "brain-coord",
            },
        )
    except ModuleNotFoundError:
        raise StoreError(
            "postgres_driver",
            "the PostgreSQL driver is not installed",
            "Install it with: pip install 'brain-node[coord,postgres]'",
        ) from None

    _, options = engine.dialect.create_connect_args(url)
    options.pop("context", None)  # the dialect's own
    try:
        import_module("psycopg.conninfo").make_conninfo(**options)
    except engine.dialect.loaded_dbapi.ProgrammingError:  # an option that there is not
        raise _not_understood() from None

    @event.listens_for(engine, "handle_error")
    def refused(context: ExceptionContext) -> None:
        if refuses(context.original_exception):
            context.is_disconnect = True  # it may be another server's turn: the next try connects anew

    return engine


def aborter(connection: Connection) -> Callable[[], None]:
    """A function for another thread that makes whatever `connection` is waiting for fail soon.

    A server that was stopped, or a network that swallows packets, answers no timeout that the server would have to keep.
    """
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        interrupt: Callable[[], None] = driver.interrupt
        return interrupt

    def cut() -> None:
        with suppress(Exception), socket.socket(fileno=os.dup(driver.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    return cut


Watch = Callable[[Connection], AbstractContextManager[None]]


def _unwatched(_connection: Connection) -> AbstractContextManager[None]:
    return nullcontext()


@contextmanager
def connect(engine: Engine, watch: Watch = _unwatched) -> Iterator[Connection]:
    """A transaction on one connection: committed at the end, rolled back on an error.

    Args:
        engine: where to take the connection from.
        watch: encloses everything from the first statement to the commit, to cut it off when it takes too long.

    Raises:
        StoreUnavailable: the database or its disk could not be used.
    """
    try:
        with _living(engine, watch) as connection, watch(connection), connection.begin():
            yield connection
    except Exception as error:
        typed = unavailable(error)
        if typed is None:
            raise
        raise typed from error


class Kept:
    """One connection that is kept between transactions: to take it from its pool each time costs more than a small commit.

    Of an embedded database, whose connections do not die. The first fault lets it go.
    """

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self._watch = watch
        self._connection: Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """As `connect`."""
        with self._taken() as connection, connection.begin():
            yield connection

    def execute(self, statement: str, parameters: tuple[Any, ...]) -> None:
        """Run one statement that is a transaction of its own: by the driver, with nothing before it and nothing behind it.

        Each call of the driver lets go of the GIL, and getting it back from a busy event loop takes longer than a small
        commit; begun and committed by calls of their own, a transaction has eight of them.

        Raises:
            StoreUnavailable: as `connect`.
        """
        with self._taken() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute(statement, parameters)

    @contextmanager
    def _taken(self) -> Iterator[Connection]:
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._engine.connect()
            with self._watch(connection):
                yield connection
        except Exception as error:
            self.let_go()
            typed = unavailable(error)
            if typed is None:
                raise
            raise typed from error

    def let_go(self) -> None:
        """Give it back to its pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _living(engine: Engine, watch: Watch) -> Connection:
    """A connection whose server answers; after a restart of the server every pooled one is dead.

    The pool's own ping would wait for a server that stands still, out of the watchdog's sight.
    """
    connection = engine.connect()
    if engine.dialect.name == "sqlite":
        return connection
    try:
        with watch(connection):
            driver: Any = connection.connection.dbapi_connection
            engine.dialect.do_ping(driver)
    except engine.dialect.loaded_dbapi.Error:
        connection.invalidate()
        connection.close()
        engine.dispose()
        return engine.connect()
    except BaseException:
        connection.close()
        raise
    return connection
