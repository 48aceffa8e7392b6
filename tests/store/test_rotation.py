"""The signing key in the store: made once, rotated under a running coordinator, never silently replaced."""

import time

import pytest

from brain_coord.receipts.history import trusted_keys
from brain_coord.receipts.signer import KEY_FILE, NEXT_KEY_FILE, Signer, SignerError
from brain_coord.receipts.verify import verify_lines
from brain_coord.store import signing
from brain_coord.store.session import session
from tests.store.conftest import IMPATIENT
from tests.store.test_spool import held
from tests.support.receipts import draft
from tests.support.stores import recovered


def rotate(data_dir, now_s=None):
    with session(data_dir) as connection:
        entry = signing.rotate(connection, data_dir, time.time() if now_s is None else now_s)
    signing.finish_rotation(data_dir)
    return entry


async def check(store):
    (history,) = await store.signers()
    lines = [receipt.line() async for receipt in store.export_receipts()]
    found = verify_lines(lines, trusted_keys(history))
    assert (found.bad, found.gaps) == (None, 0)
    return found


async def test_a_running_coordinator_signs_with_the_new_key_in_the_same_chain(open_store, data_dir):
    store = await open_store()
    first = await store.append_receipt(draft(1))
    entry = rotate(data_dir)
    second = await store.append_receipt(draft(2))
    assert (first.signer, second.signer) == (store.chain, entry.key_id)
    assert (second.chain, second.seq, second.prev) == (first.chain, 2, first.hash)
    assert (await check(store)).signers == {store.chain, entry.key_id}


async def test_the_chain_keeps_its_name_after_a_rotation_and_a_restart(open_store, data_dir):
    store = await open_store()
    chain = store.chain
    await store.append_receipt(draft(1))
    rotate(data_dir)
    rotate(data_dir)
    store = await open_store()
    await store.append_receipt(draft(2))
    assert store.chain == chain
    assert len((await check(store)).signers) == 2
    (history,) = await store.signers()
    assert [key["until"] is None for key in history["keys"]] == [False, False, True]


async def test_a_chain_verifies_by_its_history_though_the_clock_was_set_back_before_a_rotation(open_store, data_dir):
    store = await open_store()
    await store.append_receipt(draft(1))
    entry = rotate(data_dir, time.time() - 86_400)
    await store.append_receipt(draft(2))
    assert (await check(store)).signers == {store.chain, entry.key_id}


async def test_a_rotation_that_was_interrupted_is_completed_at_the_next_start(open_store, data_dir):
    await (await open_store()).append_receipt(draft(1))
    await open_store.close()
    with session(data_dir) as connection:
        entry = signing.rotate(connection, data_dir, time.time())
    assert (data_dir / NEXT_KEY_FILE).exists()
    store = await open_store()
    assert not (data_dir / NEXT_KEY_FILE).exists()
    assert (await store.append_receipt(draft(2))).signer == entry.key_id


async def test_a_rotation_that_did_not_reach_the_store_changes_nothing(open_store, data_dir):
    store = await open_store()
    await open_store.close()
    Signer.generate().save(data_dir / NEXT_KEY_FILE)
    store = await open_store()
    assert (await store.append_receipt(draft(1))).signer == store.chain
    assert rotate(data_dir).key_id == Signer.load(data_dir / KEY_FILE).key_id


async def test_two_rotations_after_another_endorse_each_other(open_store, data_dir):
    store = await open_store()
    await store.append_receipt(draft(1))
    keys = [rotate(data_dir) for _ in range(3)]
    assert [key.endorsed_by for key in keys] == [store.chain, keys[0].key_id, keys[1].key_id]


async def test_a_key_that_has_signed_nothing_yet_is_not_replaced_as_its_chain_is_named_after_it(open_store, data_dir):
    store = await open_store()
    with pytest.raises(SignerError) as error:
        rotate(data_dir)
    assert error.value.code == "chain_not_begun"
    await store.append_receipt(draft(1))
    rotate(data_dir)
    await store.append_receipt(draft(2))
    assert len((await check(store)).signers) == 2


async def test_a_key_that_is_rotated_right_before_the_database_goes_away_costs_no_receipt(open_store, data_dir):
    store = await open_store(options=IMPATIENT)
    await store.append_receipt(draft(1))
    entry = rotate(data_dir)
    with held(data_dir):
        assert (await store.append_receipt(draft(2))).signer == store.chain
    await recovered(store)
    assert (await store.append_receipt(draft(3))).signer == entry.key_id
    assert (await check(store)).receipts == 3


async def test_a_strangers_key_in_place_of_the_file_is_not_used_by_a_running_coordinator(open_store, data_dir):
    store = await open_store()
    Signer.generate().save(data_dir / KEY_FILE)
    assert (await store.append_receipt(draft(1))).signer == store.chain


async def test_a_missing_key_is_not_replaced_while_its_chain_is_there(open_store, data_dir):
    store = await open_store()
    old = store.chain
    await store.append_receipt(draft(1))
    await open_store.close()
    (data_dir / KEY_FILE).unlink()
    with pytest.raises(SignerError) as error:
        await open_store()
    assert error.value.code == "signing_key_missing"
    assert not (data_dir / KEY_FILE).exists()
    with session(data_dir) as connection:
        signing.new_chain(connection, data_dir, time.time())
    store = await open_store()
    sealed = await store.append_receipt(draft(2))
    assert (sealed.seq, store.chain != old) == (1, True)
    assert verify_lines([receipt.line() async for receipt in store.export_receipts()]).bad is None


async def test_a_new_chain_never_throws_a_key_away(open_store, data_dir):
    await open_store()
    with pytest.raises(SignerError) as error, session(data_dir) as connection:
        signing.new_chain(connection, data_dir, time.time())
    assert error.value.code == "signing_key_exists"


def test_there_is_nothing_to_rotate_before_the_first_start(data_dir):
    with pytest.raises(SignerError), session(data_dir) as connection:
        signing.rotate(connection, data_dir, time.time())
