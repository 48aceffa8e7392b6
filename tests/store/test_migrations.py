"""The schema's history leads from nothing to the tables the code uses."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from brain_coord.store.database import open_database
from brain_coord.store.errors import StoreError
from brain_coord.store.migrations import HEAD
from brain_coord.store.nodes import list_nodes
from brain_coord.store.schema import check, upgrade
from brain_coord.store.tables import metadata


@pytest.fixture
def database(data_dir, url):
    opened = open_database(data_dir, url, timeout_s=5)
    yield opened
    opened.close()


def test_an_empty_database_is_brought_up_to_date_once(database):
    assert check(database.readers) == "empty"
    assert upgrade(database.writer)
    assert check(database.readers) is None
    assert not upgrade(database.writer)


def test_the_revisions_make_exactly_the_tables_of_the_code(database):
    upgrade(database.writer)
    with database.readers.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_newest_revision_is_the_one_the_code_names():
    config = Config()
    config.set_main_option("script_location", "brain_coord.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_a_store_of_a_later_version_is_left_alone(database):
    upgrade(database.writer)
    with database.writer.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError) as error:
        upgrade(database.writer)
    assert error.value.code == "store_newer"
    assert check(database.readers) == "9999"


def test_two_that_start_at_once_upgrade_once(data_dir, url):
    databases = [open_database(data_dir, url, timeout_s=10) for _ in range(4)]
    try:
        with ThreadPoolExecutor() as threads:
            done = list(threads.map(lambda opened: upgrade(opened.writer), databases))
        assert done.count(True) == 1
        assert check(databases[0].readers) is None
    finally:
        for opened in databases:
            opened.close()


def test_an_upgrade_that_fails_leaves_nothing_behind(database, monkeypatch):
    from brain_coord.store.migrations.versions import r0001_first_schema as first

    def broken(*_arguments, **_options):
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError), monkeypatch.context() as patch:
        patch.setattr("alembic.op.create_index", broken)
        upgrade(database.writer)
    assert first.revision == "0001"
    assert check(database.readers) == "empty"
    assert upgrade(database.writer)


def test_a_database_of_the_first_schema_is_brought_up_with_what_it_holds(database):
    config = Config()
    config.set_main_option("script_location", "brain_coord.store:migrations")
    with database.writer.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text(
                "INSERT INTO nodes (node_id, public_key, first_seen_s, last_seen_s, operator, trusted, draining)"
                " VALUES (:id, :key, 1, 2, :no, :yes, :no)"
            ),
            {"id": "N-1", "key": b"k", "no": False, "yes": True},
        )
    assert check(database.readers) == "0001"
    assert upgrade(database.writer)
    assert check(database.readers) is None
    with database.readers.connect() as connection:
        (node,) = list_nodes(connection)
    assert (node.node_id, node.trusted, node.slots_borne) == ("N-1", True, None)
