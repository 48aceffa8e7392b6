"""A full disk is a typed refusal; what was there stays, and all goes on when there is room again.

The kernel's file size limit stands in for the disk: writes past it fail just as those to a full disk do.
"""

import asyncio
import contextlib
import resource

import pytest

from brain_coord.store.database import DATABASE_FILE
from brain_coord.store.errors import StoreUnavailable
from tests.store.conftest import IMPATIENT
from tests.support.receipts import draft
from tests.support.stores import chain_of, recovered


@contextlib.contextmanager
def files_limited_to(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def fill(store, numbers):
    """Append until one is refused; the ids that were acknowledged, and the error."""
    kept = []
    for number in numbers:
        try:
            kept.append((await store.append_receipt(draft(number))).unsealed().receipt_id)
        except StoreUnavailable as error:
            return kept, error
    raise AssertionError("the disk did not fill up")


async def test_a_full_disk_refuses_with_a_typed_error_and_loses_nothing(open_store, data_dir):
    store = await open_store(options=IMPATIENT)
    with files_limited_to(400_000):
        kept, error = await fill(store, range(1, 3000))
        assert error.code in ("disk_full", "disk_error")
        assert "disk" in error.next_step
        assert store.health.state == "refusing"
        with pytest.raises(StoreUnavailable):
            await store.create_key("free")
    await recovered(store)
    kept.append((await store.append_receipt(draft(5000))).unsealed().receipt_id)
    assert await chain_of(store) == kept


async def test_requests_that_keep_coming_do_not_put_off_the_recovery(open_store):
    store = await open_store(options=IMPATIENT)
    with files_limited_to(400_000):
        await fill(store, range(1, 3000))
    answers, number = [], 3000
    async with asyncio.timeout(20):
        while store.health.state != "ok":
            number += 1
            answers += await asyncio.gather(store.append_receipt(draft(number)), return_exceptions=True)
    assert await store.append_receipt(draft(9000))
    assert {answer.code for answer in answers if isinstance(answer, StoreUnavailable)} <= {"disk_full", "disk_error"}
    await chain_of(store)


async def test_what_a_full_disk_left_behind_opens_again(open_store, data_dir):
    store = await open_store(options=IMPATIENT)
    with files_limited_to(400_000):
        kept, _ = await fill(store, range(1, 3000))
        await open_store.close()
    store = await open_store(options=IMPATIENT)
    kept.append((await store.append_receipt(draft(5000))).unsealed().receipt_id)
    assert await chain_of(store) == kept


async def test_a_database_that_may_not_grow_is_full(open_store, data_dir):
    store = await open_store(options=IMPATIENT)

    def stop_growing(connection):
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 10}")

    await store.write(stop_growing)
    for number in range(1, 60):
        await store.append_receipt(draft(number))
    assert store.health.state == "spooling"
    assert "full" in store.health.reason
    assert (data_dir / DATABASE_FILE).exists()
    assert (await store.get_receipt(draft(59).receipt_id)).seq == 59
