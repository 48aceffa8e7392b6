"""The parts under the store: many rows in one statement, and calls that are cut off."""

import time

import pytest
from sqlalchemy import func, select, text

from brain_coord.store import tables
from brain_coord.store.bulk import insert_rows
from brain_coord.store.database import connect, open_database
from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.schema import upgrade
from brain_coord.store.watchdog import Watchdog


@pytest.fixture
def database(data_dir, url):
    opened = open_database(data_dir, url, timeout_s=20)
    upgrade(opened.writer)
    yield opened
    opened.close()


def test_more_rows_than_a_statement_may_have_parameters_are_inserted_all_the_same(database):
    table = tables.outcomes
    columns = [table.c.node_id, table.c.kind, table.c.result, table.c.at_s]
    with connect(database.writer) as connection:
        insert_rows(connection, table, columns, [("N-1", "customer", "completed", float(n)) for n in range(20_000)])
        insert_rows(connection, table, columns, [])
    with connect(database.readers) as connection:
        assert connection.execute(select(func.count(), func.max(table.c.at_s))).one() == (20_000, 19_999.0)


def test_an_error_rolls_everything_back(database):
    with pytest.raises(ZeroDivisionError), connect(database.writer) as connection:
        connection.execute(text("INSERT INTO api_keys VALUES ('k', 'x', 'p', 'free', NULL, 0, NULL)"))
        raise ZeroDivisionError
    with connect(database.readers) as connection:
        assert connection.execute(select(tables.api_keys)).all() == []


ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "postgresql": "SELECT pg_sleep(60)",
}


def test_a_call_that_outlasts_its_limit_is_cut_off(database):
    watchdog = Watchdog(0.2)
    began = time.monotonic()
    try:
        with pytest.raises(StoreUnavailable), connect(database.writer, watchdog.watch) as connection:
            connection.execute(text(ENDLESS[connection.dialect.name]))
        assert time.monotonic() - began < 15
        with connect(database.writer, watchdog.watch) as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
    finally:
        watchdog.close()
