"""Join tokens: counted exactly, and spent only by new nodes."""

import asyncio

import pytest

from brain_coord.store.errors import TokenRejected


async def refused(store, text, node="N-1"):
    with pytest.raises(TokenRejected) as error:
        await store.redeem_token(text, node)
    return error.value.code


async def test_a_token_says_whose_hardware_the_node_is(store):
    _, mine = await store.create_token(operator=True)
    _, theirs = await store.create_token()
    assert mine.startswith("bt-")
    assert (await store.redeem_token(mine, "N-1")).operator
    assert not (await store.redeem_token(theirs, "N-2")).operator


async def test_uses_run_out(store):
    _, text = await store.create_token(uses=2)
    assert (await store.redeem_token(text, "N-1")).uses_left == 1
    assert (await store.redeem_token(text, "N-2")).uses_left == 0
    assert await refused(store, text, "N-3") == "token_used_up"


async def test_a_node_that_comes_back_spends_nothing(store):
    _, text = await store.create_token(uses=1)
    for _ in range(3):
        assert (await store.redeem_token(text, "N-1")).uses_left == 0
    assert await refused(store, text, "N-2") == "token_used_up"


async def test_of_many_nodes_that_come_at_once_exactly_as_many_are_admitted_as_there_are_uses(store):
    _, text = await store.create_token(uses=5)
    answers = await asyncio.gather(
        *(store.redeem_token(text, f"N-{number}") for number in range(20)), return_exceptions=True
    )
    assert sum(not isinstance(answer, Exception) for answer in answers) == 5
    assert (await store.list_tokens())[0].uses_left == 0


async def test_a_token_expires_for_new_nodes_only(store):
    _, text = await store.create_token(ttl_s=60)
    await store.redeem_token(text, "N-1")
    store._clock = lambda: 1e12
    assert await refused(store, text, "N-2") == "token_expired"
    await store.redeem_token(text, "N-1")


async def test_a_revoked_token_admits_nobody(store):
    token, text = await store.create_token()
    await store.redeem_token(text, "N-1")
    assert await store.revoke_token(token.token_id)
    assert await refused(store, text, "N-1") == "token_revoked"
    assert await refused(store, text, "N-2") == "token_revoked"
    assert not await store.revoke_token(token.token_id)


async def test_an_unknown_token_is_unknown(store):
    assert await refused(store, "bt-nothing") == "token_unknown"


async def test_a_refusal_undoes_nothing_of_the_same_commit(store):
    _, text = await store.create_token(uses=1)
    good = store.redeem_token(text, "N-1")
    bad = store.redeem_token(text, "N-2")
    key = store.create_key("free")
    answers = await asyncio.gather(good, bad, key, return_exceptions=True)
    assert [isinstance(answer, TokenRejected) for answer in answers] == [False, True, False]
    assert len(await store.list_keys()) == 1
