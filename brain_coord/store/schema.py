"""The schema's revision: bringing a database up to date, and asking whether it is."""

from sqlalchemy import Connection, Engine, inspect, text

from brain_coord.store.database import connect
from brain_coord.store.errors import StoreError
from brain_coord.store.migrations import HEAD

_VERSION_TABLE = "alembic_version"
_LOCK = 0x627261696E  # "brain": one upgrade at a time on a database that several coordinators share


def revision_of(connection: Connection) -> str | None:
    """The revision a database is at; `None` for an empty one."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar()  # noqa: S608
    return found


def check(engine: Engine) -> str | None:
    """The revision a database is at when it is not the newest, `"empty"` for one without tables, `None` when it is.

    Raises:
        StoreUnavailable: the database cannot be used.
    """
    with connect(engine) as connection:
        found = revision_of(connection)
    return None if found == HEAD else found or "empty"


def upgrade(engine: Engine) -> bool:
    """Apply all missing revisions in one transaction; says whether there were any.

    Raises:
        StoreError: `store_newer`, when a later version of this program has upgraded it.
        StoreUnavailable: the database cannot be used.
    """
    if check(engine) is None:
        return False
    with connect(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        found = revision_of(connection)
        if found == HEAD:
            return False
        _run(connection, found)
    return True


def _run(connection: Connection, found: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "brain_coord.store:migrations")
    config.attributes["connection"] = connection
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            "store_newer",
            f"the store is at revision {found}, which this version does not know (its newest is {HEAD})",
            "Start the newer version of brain-coord again, or restore a backup made before the upgrade",
        )
    command.upgrade(config, "head")
