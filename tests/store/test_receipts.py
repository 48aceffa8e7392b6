"""Receipts: appended in one chain, found again, exported, pruned; always verifiable."""

import asyncio
from functools import partial

import pytest

from brain_coord.receipts.canonical import CanonicalError
from brain_coord.receipts.chain import ChainHead, seal
from brain_coord.receipts.history import trusted_keys
from brain_coord.receipts.signer import Signer
from brain_coord.receipts.verify import verify_envelope, verify_lines
from brain_coord.store.errors import StoreError
from brain_coord.store.receipt_rows import get_checkpoint, insert_receipts, page_of_receipts
from brain_coord.store.session import session
from tests.support.receipts import NODE, START_S, draft


async def append(store, numbers, **changes):
    return await asyncio.gather(*(store.append_receipt(draft(number, **changes)) for number in numbers))


async def exported(store, **filters):
    return [receipt async for receipt in store.export_receipts(**filters)]


def verified(receipts):
    found = verify_lines([receipt.line() for receipt in receipts])
    assert found.bad is None, found.bad
    return found


async def test_receipts_stand_in_the_chain_in_the_order_they_were_handed_in(store):
    sealed = await append(store, range(1, 301))
    assert [receipt.seq for receipt in sealed] == list(range(1, 301))
    assert [receipt.unsealed().receipt_id for receipt in sealed] == [
        draft(number).receipt_id for number in range(1, 301)
    ]
    found = verified(await exported(store))
    assert (found.receipts, found.gaps) == (300, 0)


async def test_one_at_a_time_makes_the_same_chain(store):
    for number in range(1, 6):
        sealed = await store.append_receipt(draft(number))
        assert (sealed.seq, sealed.path) == (number, b"")
    assert verified(await exported(store)).receipts == 5


async def test_the_chain_goes_on_after_a_restart(open_store, url):
    store = await open_store(url)
    await append(store, range(1, 4))
    chain = store.chain
    store = await open_store(url)
    await append(store, range(4, 6))
    assert store.chain == chain
    assert verified(await exported(store)).receipts == 5


async def test_a_receipt_is_found_by_its_id_and_verifies_against_the_published_keys(store):
    await append(store, range(1, 10))
    receipt = await store.get_receipt(draft(5).receipt_id)
    (history,) = await store.signers()
    assert verify_envelope(receipt.envelope(), trusted_keys(history)).receipt_id == draft(5).receipt_id
    assert await store.get_receipt("r-nothing") is None


async def test_a_key_exports_its_own_receipts_only(store):
    await append(store, range(1, 5), key_id="k-a")
    await append(store, range(5, 8), key_id="k-b")
    await append(store, range(8, 10), key_id="k-a")
    found = verified(await exported(store, key_id="k-a"))
    assert (found.receipts, found.gaps) == (6, 1)
    assert len(await exported(store, key_id="k-b")) == 3
    assert await exported(store, key_id="k-c") == []


async def test_an_export_may_be_cut_by_time(store):
    await append(store, range(1, 11))
    found = await exported(store, from_s=START_S + 3, to_s=START_S + 6)
    assert [receipt.seq for receipt in found] == [3, 4, 5]
    assert await exported(store, chain="nothing") == []


async def test_a_long_export_comes_in_pages_and_in_order(store):
    await append(store, range(1, 1201))
    assert [receipt.seq for receipt in await exported(store)] == list(range(1, 1201))


@pytest.mark.parametrize("filters", [{}, {"key_id": "k-aaaaaaaaaaaa"}, {"chain": "a"}])
def test_the_last_page_of_an_export_costs_no_more_than_the_first(data_dir, filters):
    signer = Signer.generate()
    steps = []
    with session(data_dir) as connection:
        for chain in ("a", "b"):
            links = seal(ChainHead(chain), [draft(number).canonical() for number in range(3000)], signer)
            insert_receipts(connection, [(link.unsealed(), link) for link in links])
        connection.connection.driver_connection.set_progress_handler(lambda: steps.append(1), 50)
        costs = []
        for after in (("a", 0), ("a", 2980)):
            steps.clear()
            assert page_of_receipts(connection, after=after, limit=20, **filters)[-1].seq == after[1] + 20
            costs.append(len(steps))
    assert costs[1] < 2 * costs[0]


async def test_recent_receipts_come_newest_first(store):
    await append(store, range(1, 80))
    assert [receipt.seq for receipt in await store.recent_receipts(3)] == [79, 78, 77]


@pytest.mark.parametrize(
    ("changes", "error"), [({"extra": {"odd": object()}}, CanonicalError), ({"time_s": 1e20}, OverflowError)]
)
async def test_a_draft_that_cannot_be_written_fails_alone(store, changes, error):
    good, bad, after = await asyncio.gather(
        store.append_receipt(draft(1)),
        store.append_receipt(draft(2, **changes)),
        store.append_receipt(draft(3)),
        return_exceptions=True,
    )
    assert isinstance(bad, error)
    assert [good.seq, after.seq] == [1, 2]
    assert verified(await exported(store)).receipts == 2


async def test_a_write_that_fails_fails_alone(store):
    def broken(connection):
        raise ZeroDivisionError("mine")

    first, failed, last, key = await asyncio.gather(
        store.append_receipt(draft(1)),
        store.write(broken),
        store.append_receipt(draft(2)),
        store.create_key("free"),
        return_exceptions=True,
    )
    assert isinstance(failed, ZeroDivisionError)
    assert [first.seq, last.seq] == [1, 2]
    assert key[0] in await store.list_keys()
    assert store.health.state == "ok"


async def test_a_caller_that_has_gone_away_does_not_stop_its_receipt(store):
    future = store.append_receipt(draft(1))
    future.cancel()
    await store.append_receipt(draft(2))
    assert verified(await exported(store)).receipts == 2


async def test_pruning_leaves_a_chain_that_continues_from_a_signed_hash(store):
    await append(store, range(1, 2101))
    before = {receipt.seq: receipt for receipt in await exported(store)}
    assert await store.prune(receipts_before_s=START_S + 2051) == 2050
    kept = await exported(store)
    point = await store.read(partial(get_checkpoint, chain=store.chain))
    assert [receipt.seq for receipt in kept] == list(range(2051, 2101))
    assert (point.seq, point.hash) == (2050, kept[0].prev)
    assert (point.signature, point.path) == (before[2050].signature, before[2050].path)
    assert verified(kept).gaps == 0


async def test_a_chain_pruned_to_nothing_goes_on_where_it_ended(open_store, url):
    store = await open_store(url)
    sealed = await append(store, range(1, 6))
    assert await store.prune(receipts_before_s=START_S + 100) == 5
    assert await store.prune(receipts_before_s=START_S + 100) == 0
    store = await open_store(url)
    (after,) = await append(store, [6])
    assert (after.seq, after.prev) == (6, sealed[-1].hash)


async def test_a_store_without_a_chain_takes_no_receipts(open_store, url):
    store = await open_store(url, receipts=False)
    assert store.chain is None
    with pytest.raises(StoreError, match="signing key"):
        await store.append_receipt(draft(1))


async def test_after_closing_nothing_is_taken(open_store, url):
    store = await open_store(url)
    last = store.append_receipt(draft(1))
    await open_store.close()
    assert last.result().seq == 1
    with pytest.raises(StoreError, match="closed"):
        await store.append_receipt(draft(2))


async def test_two_coordinators_on_one_server_have_a_chain_each(open_store, postgres, tmp_path):
    from brain_coord.store.store import Store

    url = postgres.create_database()
    one = await open_store(url)
    two = await Store.open(tmp_path / "other", url)
    try:
        await asyncio.gather(append(one, range(1, 50)), append(two, range(50, 100)))
        found = verified(await exported(one))
        assert (found.receipts, found.gaps, len(found.last)) == (99, 0, 2)
        assert {history["chain"] for history in await one.signers()} == {one.chain, two.chain}
        assert {receipt.seq for receipt in await exported(one, chain=two.chain)} == set(range(1, 51))
        assert NODE in (await one.get_receipt(draft(77).receipt_id)).body.decode()
    finally:
        await two.close()
