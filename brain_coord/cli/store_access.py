"""How commands reach the store: the shared options, and errors as one line of cause with the next step."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import orjson
import platformdirs
import typer
from sqlalchemy import Connection

from brain_coord.config.faults import ConfigError
from brain_coord.config.file import DATABASE_URL as DATABASE_URL
from brain_coord.config.file import database_url
from brain_coord.receipts.chain import DamagedReceipt
from brain_coord.receipts.signer import SignerError
from brain_coord.store.database import make_private_dir
from brain_coord.store.errors import StoreError, StoreUnavailable, cannot_be_used
from brain_coord.store.session import session

USAGE: Final = 2
"""Exit code: the command line is wrong, or names something that is not there."""

TEMPORARY: Final = 75
"""Exit code: the store cannot be used now, it may work later."""

CONFIG: Final = 78
"""Exit code: only a person can mend it."""


def default_data_dir() -> Path:
    """The coordinator's data folder when none is named."""
    return platformdirs.user_data_path("brain-coord")


DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        readable=False,  # told by whoever opens it, with what to do
        envvar="BRAIN_COORD_DATA_DIR",
        default_factory=default_data_dir,
        show_default="the user's data folder",
        metavar="FOLDER",
        help="The coordinator's data folder.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


@contextmanager
def open_store(data_dir: Path, *, write: bool) -> Iterator[Connection]:
    """A transaction on the store; its errors end the command."""
    with store_errors(), session(data_dir, store_url(data_dir), write=write) as connection:
        yield connection


@contextmanager
def store_errors() -> Iterator[None]:
    """An error of the store ends the command."""
    try:
        yield
    except (StoreError, SignerError) as error:
        fail(error.code, error.message, error.next_step, exit_code_of(error))
    except DamagedReceipt as error:
        next_step = "`brain-coord receipts export` and `verify` tell what else is; restore a backup"
        fail("receipt_damaged", f"{error} in the store", next_step)
    except UnicodeEncodeError:
        fail("not_utf8", "a part of the command line is not text in UTF-8", "Type it in UTF-8", USAGE)


@contextmanager
def own_folder(data_dir: Path) -> Iterator[None]:
    """For a command that has a file of its own in the data folder: made and closed to others as for the store."""
    with store_errors():
        make_private_dir(data_dir)
        try:
            yield
        except OSError as error:
            raise cannot_be_used(f"the data directory {data_dir}", error) from None


def exit_code_of(error: Exception) -> int:
    """Whether an error of the store passes by itself: what a service manager should try again."""
    passes = isinstance(error, StoreUnavailable) and error.code != "database_damaged"
    return TEMPORARY if passes else CONFIG


def store_url(data_dir: Path) -> str | None:
    """The database that `serve` would use on this data folder."""
    named = os.environ.get("BRAIN_COORD_CONFIG")
    try:
        return database_url(data_dir, Path(named) if named else None)
    except ConfigError as error:
        fail(error.code, error.message, error.next_step)


def fail(code: str, message: str, next_step: str = "", exit_code: int = CONFIG) -> NoReturn:
    """Say what is wrong on standard error, and leave."""
    typer.echo(f"error [{code}]: {message}" + (f"\n  next: {next_step}" if next_step else ""), err=True)
    raise typer.Exit(exit_code)


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
