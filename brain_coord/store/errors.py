"""What can go wrong with the store, as errors with a stable code, one line of cause and the next step.

`StoreError` is the base. `StoreUnavailable` means that nothing was recorded and the same call may succeed later; its
codes are `database_down`, `database_slow`, `database_busy`, `database_contended`, `database_read_only`, `database_damaged`,
`disk_full`, `disk_error`, `spool_full`, `store_closed`, `store_behind`, `chain_conflict`.
"""

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout


class StoreError(Exception):
    """The store refused or could not be opened."""

    def __init__(self, code: str, message: str, next_step: str) -> None:
        super().__init__(f"{message}. {next_step}")
        self.code = code
        self.message = message
        self.next_step = next_step


class StoreUnavailable(StoreError):  # noqa: N818  (a state of the store, as in HTTP's 503)
    """Nothing was recorded; try again later."""


class TokenRejected(StoreError):  # noqa: N818  (an answer, not a fault)
    """A join token does not admit this node: `token_unknown`, `token_revoked`, `token_expired` or `token_used_up`."""


CONFLICTS = (IntegrityError, sqlite3.IntegrityError)
"""A row that must not be twice is there already: by way of SQLAlchemy, and by SQLite's own driver."""

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SQLITE_CODES = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_IOERR: "disk_error",
    sqlite3.SQLITE_BUSY: "database_busy",
    sqlite3.SQLITE_LOCKED: "database_busy",
    sqlite3.SQLITE_INTERRUPT: "database_slow",
    sqlite3.SQLITE_CORRUPT: "database_damaged",
    sqlite3.SQLITE_NOTADB: "database_damaged",
}
_POSTGRES_CODES = {
    "25006": "database_read_only",
    "53100": "disk_full",
    "57014": "database_slow",
    "55P03": "database_busy",
    "40001": "database_contended",
    "40P01": "database_contended",
    "XX001": "database_damaged",
    "XX002": "database_damaged",
}
_NEXT_STEPS = {
    "disk_full": "Free space on the disk that holds the data directory",
    "disk_error": "Look at the disk that holds the data directory: full, over a quota, or failing",
    "database_busy": "Another program holds the database; end it or wait",
    "database_contended": "Others write the same rows; it passes by itself",
    "database_slow": "Look at the database server's load and its disk",
    "database_read_only": "Give the address of the server that takes writes, or make this one the primary",
    "database_damaged": "Stop the coordinator and restore a backup, see `brain-coord db backup --help`",
    "database_down": "Check that the database runs and that its address is right",
}


def cannot_be_used(what: str, error: OSError) -> StoreError:
    """The typed form of an error that means a data directory, or a file in it, could not be used."""
    return StoreError(
        "data_dir",
        f"{what} cannot be used: {error.strerror or error}",
        "Run as the user who owns it, see that its disk takes writes, or choose another one with --data-dir",
    )


def unavailable(error: Exception) -> StoreUnavailable | None:
    """The typed form of an error that means the database or disk could not be used; `None` for any other error."""
    if isinstance(error, StoreUnavailable):
        return error
    if isinstance(error, OSError):
        code = "disk_full" if error.errno in _DISK else "disk_error"
        return _unavailable(code, error.strerror or str(error))
    if isinstance(error, PoolTimeout):
        return _unavailable("database_slow", "no database connection became free in time")
    if not isinstance(error, DBAPIError | sqlite3.Error):
        return None
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        # The extended code holds the plain one in its low byte; only plain ones are told apart here.
        plain = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if isinstance(cause, sqlite3.OperationalError) and plain != sqlite3.SQLITE_ERROR:
            return _unavailable(_SQLITE_CODES.get(plain, "database_down"), str(cause))
        return _unavailable(_SQLITE_CODES[plain], str(cause)) if plain in _SQLITE_CODES else None
    if isinstance(error, OperationalError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
        code = _POSTGRES_CODES.get(_sqlstate(cause), "database_down")
        return _unavailable(code, str(cause).strip().split("\n")[0])
    return None


def refuses(cause: BaseException) -> bool:
    """Whether a PostgreSQL server that answers takes nothing from us, whatever it is: a standby, no rights, a fault in it."""
    sqlstate = _sqlstate(cause)
    return sqlstate in ("25006", "42501") or sqlstate.startswith("XX")


def _sqlstate(cause: object) -> str:
    return getattr(cause, "sqlstate", None) or ""


def _unavailable(code: str, cause: str) -> StoreUnavailable:
    return StoreUnavailable(code, f"the store cannot be used: {cause}", _NEXT_STEPS[code])
