"""PostgreSQL stops, freezes or is not there: receipts go on, and nothing waits for ever."""

import asyncio

import pytest

from brain_coord.store.database import open_database
from brain_coord.store.errors import StoreError, StoreUnavailable
from tests.store.conftest import IMPATIENT
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


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "", "sqlite:///x.db"])
def test_a_url_of_another_kind_is_an_error_that_does_not_repeat_it(tmp_path, url):
    with pytest.raises(StoreError) as error:
        open_database(tmp_path, url or "://secret")
    assert error.value.code == "database_url"
    assert "secret" not in str(error.value)
