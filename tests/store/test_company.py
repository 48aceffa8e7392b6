"""Receipts that come soon after one another are committed together, under one signature; none waits for ever."""

import asyncio
from functools import partial
from itertools import count

import pytest

from brain_coord.store.store import StoreOptions
from brain_coord.store.writer import WriterLimits
from tests.support.receipts import draft

HOUR_S = 3600.0


def waiting(company_s, alone_s):
    return StoreOptions(timeout_s=30.0, writer=WriterLimits(company_s=company_s, alone_s=alone_s))


async def test_receipts_wait_for_those_that_are_expected(open_store):
    store = await open_store(options=waiting(HOUR_S, HOUR_S))
    store.expect(lambda: 3)
    futures = []
    for number in (1, 2, 3):
        futures.append(store.append_receipt(draft(number)))
        await asyncio.sleep(0)
    assert len({sealed.signature for sealed in await asyncio.gather(*futures)}) == 1


async def test_a_receipt_that_nobody_joins_goes_alone(open_store):
    store = await open_store(options=waiting(HOUR_S, 0.0))
    store.expect(lambda: 100)
    assert (await store.append_receipt(draft(1))).seq == 1


async def test_a_receipt_does_not_wait_longer_because_others_go_on_coming(open_store):
    store = await open_store(options=waiting(0.0, 0.0))
    store.expect(lambda: 100_000)
    first = store.append_receipt(draft(1))
    later = []
    for number in count(2):
        if first.done():
            break
        later.append(store.append_receipt(draft(number)))
        await asyncio.sleep(0)
    assert (await first).seq == 1
    await asyncio.gather(*later)


async def test_a_receipt_is_drafted_when_it_leaves_with_its_company(open_store):
    store = await open_store(options=waiting(HOUR_S, HOUR_S))
    store.expect(lambda: 3)
    drafted = []

    def late(number):
        drafted.append(number)
        return draft(number)

    futures = [store.append_late(partial(late, 1)), store.append_late(partial(late, 2))]
    await asyncio.sleep(0)
    assert drafted == []
    futures.append(store.append_late(partial(late, 3)))
    assert drafted == [1, 2, 3]
    assert len({sealed.signature for sealed in await asyncio.gather(*futures)}) == 1


async def test_a_receipt_whose_draft_fails_fails_alone(open_store):
    store = await open_store(options=waiting(HOUR_S, HOUR_S))
    store.expect(lambda: 2)
    bad, good = store.append_late({}.popitem), store.append_late(partial(draft, 2))
    with pytest.raises(KeyError):
        await bad
    assert (await good).seq == 1


async def test_what_was_to_be_drafted_late_is_written_when_the_store_closes(open_store):
    store = await open_store(options=waiting(HOUR_S, HOUR_S))
    store.expect(lambda: 100)
    learnt = []

    def late():
        learnt.append(store.write(lambda connection: connection.exec_driver_sql("SELECT 7").scalar()))
        return draft(1)

    last = store.append_late(late)
    await open_store.close()
    assert (await last).seq == 1
    assert await learnt[0] == 7
