"""Receipts that come soon after one another are committed together, under one signature; none waits for ever."""

import asyncio
from itertools import count

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
