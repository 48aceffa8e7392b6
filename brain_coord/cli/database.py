"""`brain-coord db`: the store's schema and a copy of it that can be restored."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from brain_coord.cli.store_access import USAGE, AsJson, DataDir, fail, print_json, store_errors, store_url
from brain_coord.receipts.signer import KEY_FILE, NEXT_KEY_FILE, Signer
from brain_coord.store.database import DATABASE_FILE, Database, open_database
from brain_coord.store.migrations import HEAD
from brain_coord.store.schema import check as schema_check
from brain_coord.store.schema import upgrade as schema_upgrade

_BEGINNINGS = 20
"""How often a copy is begun anew because the key was just rotated."""

db_app = typer.Typer(no_args_is_help=True, help="The store's schema, and backups of it.")


@contextmanager
def _database(data_dir: Path) -> Iterator[Database]:
    with store_errors(), closing(open_database(data_dir, store_url(data_dir), timeout_s=10.0, readers=1)) as database:
        yield database


@db_app.command("check")
def check(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Say whether the schema is the newest this version knows. The exit code is 1 when it is not."""
    with _database(data_dir) as database:
        found = schema_check(database.readers)
    if as_json:
        print_json({"current": found is None, "found": HEAD if found is None else found, "newest": HEAD})
    elif found is None:
        typer.echo(f"the schema is current (revision {HEAD})")
    else:
        typer.echo(f"the schema is {found}, the newest is {HEAD}; bring it up with: brain-coord db upgrade")
    if found is not None:
        raise typer.Exit(1)


@db_app.command("upgrade")
def upgrade(data_dir: DataDir, as_json: AsJson = False) -> None:
    """Bring the schema up to date. `serve` does so by itself at its start."""
    with _database(data_dir) as database:
        changed = schema_upgrade(database.writer)
    if as_json:
        print_json({"upgraded": changed, "revision": HEAD})
    else:
        typer.echo(f"upgraded to revision {HEAD}" if changed else f"the schema is current (revision {HEAD})")


def _not_copied(target: Path, error: OSError | sqlite3.Error) -> NoReturn:
    cause = error.strerror if isinstance(error, OSError) else None
    fail("backup", f"cannot copy to {target}: {cause or error}", "Check the folder and its disk")


def _begin_copy(live: sqlite3.Connection, data_dir: Path) -> Signer:
    """Begin the read that the whole copy is made within, and find the key that goes with what it sees.

    Within one read: between two of its own a coordinator that writes makes SQLite begin anew, without end. A rotation that
    the read sees may have its key still in the file of the next one; from one that came a moment later the old key is gone,
    and the read has to begin behind it.
    """
    found: list[Signer] = []
    for _ in range(_BEGINNINGS):
        live.rollback()
        live.execute("BEGIN")
        current = {key_id for (key_id,) in live.execute("SELECT key_id FROM signer_keys WHERE until_s IS NULL")}
        found = []
        for name in (NEXT_KEY_FILE, KEY_FILE):  # in this order, as a rotation moves the one to the other
            with suppress(FileNotFoundError):
                found.append(Signer.load(data_dir / name))
        for signer in found:
            if signer.key_id in current:
                return signer
    if not (data_dir / KEY_FILE).is_file():
        fail("no_signing_key", f"there is no {KEY_FILE} in {data_dir}", "The coordinator makes one at its first start")
    return found[-1]  # with which the store has nothing to go on: its next start begins a chain of its own


@db_app.command("backup")
def backup(
    data_dir: DataDir,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="New or empty folder; made with mode 0700.")],
    as_json: AsJson = False,
) -> None:
    """Copy the embedded store and the signing key. The coordinator may run meanwhile.

    To restore: stop the coordinator, move everything out of its data folder (a coord.db-wal that a crash left there would
    change what is restored), copy both files in, with your config.toml, start it again. Where receipts were given after
    the backup, leave signing.key out and run `brain-coord keys new-chain` before the start, or links of the chain are
    given twice. The secret of the operator's pages is made anew with `brain-coord operator create`. With PostgreSQL use
    its own tools for the database (pg_dump) and copy only the signing key.
    """
    if store_url(data_dir) is not None:
        fail("not_embedded", "the store is PostgreSQL", "Use pg_dump, and keep a copy of signing.key", USAGE)
    source = data_dir / DATABASE_FILE
    if not source.is_file():
        fail("no_store", f"there is no store in {data_dir}", "Name the coordinator's --data-dir", USAGE)
    try:
        taken = target.exists() and not (target.is_dir() and not any(target.iterdir()))
    except OSError as error:
        _not_copied(target, error)
    if taken:
        fail("not_empty", f"{target} is not an empty folder", "Name a new folder", USAGE)
    before = os.umask(0o077)
    try:
        with store_errors(), closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)) as live:
            signer = _begin_copy(live, data_dir)
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.chmod(0o700)
            with closing(sqlite3.connect(target / DATABASE_FILE)) as copy:
                live.backup(copy, pages=1024)
            signer.save(target / KEY_FILE)
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(target, ignore_errors=True)  # half a backup would look like a whole one
        _not_copied(target, error)
    finally:
        os.umask(before)
    if as_json:
        print_json({"folder": str(target), "files": [DATABASE_FILE, KEY_FILE]})
    else:
        typer.echo(f"copied {DATABASE_FILE} and {KEY_FILE} to {target}; keep them private")
