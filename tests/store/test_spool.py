"""While the database is away receipts go to disk, in order, and from there into the database; or they are refused."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import shutil
import sqlite3
import stat

import pytest

from brain_coord.store.database import DATABASE_FILE
from brain_coord.store.errors import StoreError, StoreUnavailable
from brain_coord.store.spool import Spool
from tests.store.conftest import IMPATIENT
from tests.support.receipts import draft, sealed_chain
from tests.support.stores import chain_of, recovered

REFUSING = dataclasses.replace(IMPATIENT, on_store_failure="refuse")


@contextlib.contextmanager
def held(data_dir):
    """Another program holds the database's write lock."""
    with contextlib.closing(sqlite3.connect(data_dir / DATABASE_FILE, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield


async def test_receipts_go_to_disk_and_later_into_the_database_in_order(store_on_sqlite, data_dir):
    store = store_on_sqlite
    await store.append_receipt(draft(1))
    with held(data_dir):
        sealed = await asyncio.gather(*(store.append_receipt(draft(number)) for number in range(2, 102)))
        assert [receipt.seq for receipt in sealed] == list(range(2, 102))
        assert (store.health.state, store.health.spooled) == ("spooling", 100)
        assert "database" in store.health.reason
        assert store.health.since_s is not None
        assert (await store.get_receipt(draft(50).receipt_id)).seq == 50
    await recovered(store)
    await store.append_receipt(draft(102))
    assert await chain_of(store) == [draft(number).receipt_id for number in range(1, 103)]
    assert (data_dir / "spool" / "receipts.jsonl").stat().st_size == 0


async def test_each_change_of_health_is_told_once(open_store, data_dir):
    told = []
    store = await open_store(options=dataclasses.replace(IMPATIENT, on_health=told.append))
    with held(data_dir):
        for number in range(1, 4):
            await store.append_receipt(draft(number))
    await recovered(store)
    await store.append_receipt(draft(4))
    assert [health.state for health in told] == ["spooling", "ok"]


async def test_what_comes_while_the_spool_is_written_keeps_its_place(store_on_sqlite, data_dir):
    store = store_on_sqlite
    with held(data_dir):
        await asyncio.gather(*(store.append_receipt(draft(number)) for number in range(1, 1202)))
    numbers = iter(range(1202, 10_000))
    last = 1201
    async with asyncio.timeout(20):
        while store.health.state != "ok":
            last = next(numbers)
            await store.append_receipt(draft(last))
    assert await chain_of(store) == [draft(number).receipt_id for number in range(1, last + 1)]


async def test_the_spool_outlives_a_restart(open_store, data_dir):
    store = await open_store(options=IMPATIENT)
    with held(data_dir):
        await store.append_receipt(draft(1))
        await open_store.close()
    store = await open_store(options=IMPATIENT)
    assert (await store.append_receipt(draft(2))).seq == 2
    assert await chain_of(store) == [draft(1).receipt_id, draft(2).receipt_id]


async def test_a_store_that_is_an_older_copy_than_its_spool_is_named(open_store, data_dir, tmp_path):
    store = await open_store(options=IMPATIENT)
    await store.append_receipt(draft(1))
    await open_store.close()
    shutil.copy(data_dir / DATABASE_FILE, tmp_path / "older")
    store = await open_store(options=IMPATIENT)
    await store.append_receipt(draft(2))
    with held(data_dir):
        await store.append_receipt(draft(3))
        await open_store.close()
    shutil.copy(data_dir / DATABASE_FILE, tmp_path / "newest")
    shutil.copy(tmp_path / "older", data_dir / DATABASE_FILE)
    store = await open_store(options=IMPATIENT)
    async with asyncio.timeout(20):
        number = 4
        while "older copy" not in (store.health.reason or ""):
            await store.append_receipt(draft(number))
            number += 1
    assert "ends at link 1" in store.health.reason
    assert "goes on from link 3" in store.health.reason
    await open_store.close()
    shutil.copy(tmp_path / "newest", data_dir / DATABASE_FILE)
    store = await open_store(options=IMPATIENT)
    assert await chain_of(store) == [draft(each).receipt_id for each in range(1, number)]


async def test_other_writes_fail_at_once_while_the_database_is_away(store_on_sqlite, data_dir):
    store = store_on_sqlite
    with held(data_dir):
        await store.append_receipt(draft(1))
        with pytest.raises(StoreUnavailable) as error:
            await store.create_key("free")
        assert error.value.code == "database_busy"
    await recovered(store)
    await store.create_key("free")


async def test_refusing_records_nothing_and_says_so(open_store, data_dir):
    store = await open_store(options=REFUSING)
    await store.append_receipt(draft(1))
    with held(data_dir):
        for number in (2, 3):
            with pytest.raises(StoreUnavailable) as error:
                await store.append_receipt(draft(number))
        assert error.value.code == "database_busy"
        assert store.health.state == "refusing"
        assert not (data_dir / "spool" / "receipts.jsonl").stat().st_size
    await recovered(store)
    assert (await store.append_receipt(draft(4))).seq == 2
    assert await chain_of(store) == [draft(1).receipt_id, draft(4).receipt_id]


async def test_a_full_spool_refuses_and_keeps_what_it_has(open_store, data_dir):
    line = 2000
    store = await open_store(options=dataclasses.replace(IMPATIENT, spool_limit_bytes=3 * line))
    kept = []
    with held(data_dir):
        for number in range(1, 6):
            try:
                kept.append((await store.append_receipt(draft(number))).unsealed().receipt_id)
            except StoreUnavailable as error:
                assert error.code == "spool_full"
        assert 1 <= len(kept) < 5
        assert store.health.state == "refusing"
    await recovered(store)
    await store.append_receipt(draft(6))
    assert await chain_of(store) == [*kept, draft(6).receipt_id]


async def test_a_damaged_spool_is_an_error_and_stays_as_it_is(open_store, data_dir):
    store = await open_store(options=IMPATIENT)
    with held(data_dir):
        for number in range(1, 4):
            await store.append_receipt(draft(number))
        await open_store.close()
    spool = data_dir / "spool" / "receipts.jsonl"
    damaged = spool.read_bytes().replace(b"r-00000002", b"r-00000009")
    spool.write_bytes(damaged)
    with pytest.raises(StoreError) as error:
        await open_store(options=IMPATIENT)
    assert error.value.code == "spool_damaged"
    assert "line 2" in error.value.message
    assert spool.read_bytes() == damaged


async def test_the_spool_is_private(store_on_sqlite, data_dir):
    with held(data_dir):
        await store_on_sqlite.append_receipt(draft(1))
        assert stat.S_IMODE((data_dir / "spool").stat().st_mode) == 0o700
        assert stat.S_IMODE((data_dir / "spool" / "receipts.jsonl").stat().st_mode) == 0o600


async def test_an_append_that_failed_leaves_nothing_for_the_next_to_stand_behind(tmp_path, monkeypatch):
    chain, _ = sealed_chain(3)
    spool = Spool(tmp_path, 1 << 20)
    spool.append([("r-1", chain[0])])

    def fails(*_arguments):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(StoreUnavailable) as error:
            spool.append([("r-2", chain[1])])
    assert error.value.code == "disk_full"
    spool.append([("r-2", chain[1])])
    assert spool.waiting(10) == chain[:2]
    spool.close()
    again = Spool(tmp_path, 1 << 20)
    assert again.waiting(10) == chain[:2]
    again.close()


@pytest.fixture
async def store_on_sqlite(open_store):
    return await open_store(options=IMPATIENT)
