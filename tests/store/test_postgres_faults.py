"""PostgreSQL stops, freezes or is not there: receipts go on, and nothing waits for ever."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from brain_coord.store.database import open_database
from brain_coord.store.errors import StoreError, StoreUnavailable
from brain_coord.store.records import Uptime
from tests.store.conftest import IMPATIENT, PATIENT
from tests.support.postgres import PostgresServer
from tests.support.receipts import draft
from tests.support.stores import chain_of, recovered


@pytest.fixture(scope="module")
def server():
    own = PostgresServer()  # its own: the other tests' server is not to be stopped
    try:
        yield own.start()
    finally:
        own.remove()


async def check(store, count):
    assert await chain_of(store) == [draft(number).receipt_id for number in range(1, count + 1)]


async def append(store, numbers):
    return await asyncio.gather(*(store.append_receipt(draft(number)) for number in numbers))


async def test_receipts_outlast_a_server_that_is_killed_and_started_again(open_store, server):
    store = await open_store(server.create_database(), options=IMPATIENT)
    await append(store, range(1, 101))
    server.kill()
    sealed = await append(store, range(101, 201))
    assert sealed[-1].seq == 200
    assert store.health.state == "spooling"
    assert (await store.get_receipt(draft(150).receipt_id)).seq == 150
    with pytest.raises(StoreUnavailable):
        await store.list_nodes()
    server.start()
    await recovered(store)
    await append(store, range(201, 211))
    await check(store, 210)


async def test_a_server_that_stands_still_holds_nothing_up_for_long(open_store, server):
    store = await open_store(server.create_database(), options=IMPATIENT)
    await append(store, range(1, 11))
    server.freeze()
    try:
        async with asyncio.timeout(15):
            sealed = await append(store, range(11, 21))
            assert sealed[-1].seq == 20
            with pytest.raises(StoreUnavailable):
                await store.list_nodes()
    finally:
        server.thaw()
    await recovered(store)
    await check(store, 20)


async def test_receipts_outlast_a_server_that_takes_no_writes(open_store, server):
    """What is left of the primary after a failover: it answers, and refuses."""
    store = await open_store(server.create_database(), options=IMPATIENT)
    await append(store, range(1, 11))
    server.read_only(True)
    try:
        sealed = await append(store, range(11, 21))
        assert sealed[-1].seq == 20
        assert store.health.state == "spooling"
        assert "read-only" in store.health.reason
        with pytest.raises(StoreUnavailable) as error:
            await store.set_ban("N-1", "why")
        assert error.value.code == "database_read_only"
    finally:
        server.read_only(False)
    await recovered(store)
    await append(store, range(21, 31))
    await check(store, 30)


async def test_a_commit_whose_answer_was_lost_is_not_written_twice(open_store, server):
    """The server commits, but the connection is cut before it can say so."""
    store = await open_store(server.create_database(), options=IMPATIENT)
    await append(store, range(1, 6))
    from brain_coord.store import writer as writer_module

    real, cut = writer_module.connect, []

    def connect(engine, watch=None):
        context = real(engine, watch)
        if not cut:
            cut.append(True)
            return _LostAnswer(context)
        return context

    writer_module.connect = connect
    try:
        sealed = await append(store, [6])
    finally:
        writer_module.connect = real
    assert sealed[0].seq == 6
    await recovered(store)
    await append(store, range(7, 9))
    await check(store, 8)


async def test_writes_that_clash_with_those_of_another_coordinator_are_no_outage(open_store, server):
    url, heard = server.create_database(), []
    store = await open_store(url, options=replace(PATIENT, on_health=heard.append))
    days = [Uptime(node_id, 1, 1.0, 1.0) for node_id in ("N-A", "N-B")]
    await store.add_uptime(days)
    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as thread:
        other.execute("SET deadlock_timeout = '1min'")  # so that it is the store whose transaction is given up
        other.execute("UPDATE node_uptime SET connected_s = 10 WHERE node_id = 'N-B'")
        written = asyncio.gather(store.add_uptime(days), store.append_receipt(draft(1)))
        while not waiting_for_locks(url):  # noqa: ASYNC110  (another process's locks)
            await asyncio.sleep(0.02)
        await asyncio.get_running_loop().run_in_executor(
            thread, other.execute, "UPDATE node_uptime SET connected_s = 10 WHERE node_id = 'N-A'"
        )
        other.commit()
    await written
    assert [each.connected_s for each in await store.load_uptime(1)] == [11.0, 11.0]
    assert heard == []
    await check(store, 1)


def waiting_for_locks(url):
    with psycopg.connect(url) as watcher:
        return watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()[0]


async def test_a_server_that_is_strict_by_default_is_not_so_with_us(open_store, server):
    url = server.create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.execute("SELECT current_database()").fetchone()[0]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    store = await open_store(url)

    def level(connection):
        return connection.exec_driver_sql("SHOW transaction_isolation").scalar()

    assert [await store.read(level), await store.write(level)] == ["read committed"] * 2


class _LostAnswer:
    def __init__(self, context):
        self._context = context

    def __enter__(self):
        return self._context.__enter__()

    def __exit__(self, *error):
        self._context.__exit__(*error)
        raise StoreUnavailable("database_down", "the connection was cut", "Try again")


async def test_a_server_that_is_not_there_is_an_error_at_the_start(open_store, tmp_path):
    with pytest.raises(StoreUnavailable) as error:
        await open_store(f"postgresql://brain@/x?host={tmp_path}", options=IMPATIENT)
    assert error.value.code == "database_down"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://x/y",
        "nonsense",
        "",
        "sqlite:///x.db",
        "postgresql://u:in@secret@h/n",
        "postgresql://u:secret@h:port/n",
        "postgresql://u@h/n?secret=1",
    ],
)
def test_a_url_of_another_kind_is_an_error_that_does_not_repeat_it(tmp_path, url):
    with pytest.raises(StoreError) as error:
        open_database(tmp_path, url or "://secret")
    assert error.value.code == "database_url"
    assert "secret" not in str(error.value)
