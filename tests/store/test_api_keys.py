"""API keys: shown once, kept as a hash, good until revoked."""

import asyncio
import dataclasses

from sqlalchemy import select

from brain_coord.store import tables
from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.key_cache import KeyCache
from brain_coord.store.records import ApiKey


async def test_a_key_is_found_by_its_text(store):
    key, text = await store.create_key("paid", "lab")
    assert text.startswith("bk-")
    assert text.startswith(key.prefix)
    assert await store.find_key(text) == key
    assert (key.plan, key.label) == ("paid", "lab")


async def test_an_unknown_text_finds_nothing(store):
    _, text = await store.create_key("free")
    for other in ("", "bk-", text[:-1], text + "x", text.upper(), "x" * 10_000, "\ud800"):
        assert await store.find_key(other) is None


async def test_a_revoked_key_is_no_longer_found(store):
    key, text = await store.create_key("free")
    await store.find_key(text)
    assert await store.revoke_key(key.key_id)
    assert await store.find_key(text) is None
    assert not await store.revoke_key(key.key_id)
    assert (await store.list_keys())[0].revoked_s is not None


async def test_keys_are_listed_in_the_order_they_were_made(store):
    made = [(await store.create_key("free", str(number)))[0] for number in range(3)]
    assert await store.list_keys() == made


async def test_the_text_is_nowhere_in_the_store(store):
    key, text = await store.create_key("free")
    rows = await store.read(lambda connection: connection.execute(select(tables.api_keys)).all())
    assert text not in repr(rows)
    assert text[len(key.prefix) :] not in repr(rows)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Database:
    """What the cache asks: counts, and can be away."""

    def __init__(self):
        self.answers = asyncio.Event()
        self.answers.set()
        self.key = ApiKey("k-1", "bk-", "free", None, 0.0)
        self.asked = 0
        self.away = False

    async def load(self, secret):
        self.asked += 1
        await self.answers.wait()
        if self.away:
            raise StoreUnavailable("database_down", "away", "wait")
        return self.key if secret == "good" else None


async def test_a_key_in_memory_is_good_for_a_moment_without_asking():
    clock, database = Clock(), Database()
    cache = KeyCache(database.load, 1.0, clock)
    for _ in range(100):
        assert await cache.find("good") == database.key
    assert database.asked == 1
    clock.now = 1.0
    await cache.find("good")
    assert database.asked == 2


async def test_a_key_revoked_in_another_process_ends_within_that_moment():
    clock, database = Clock(), Database()
    cache = KeyCache(database.load, 1.0, clock)
    await cache.find("good")
    database.key = dataclasses.replace(database.key, revoked_s=0.5)
    clock.now = 1.0
    assert await cache.find("good") is None


async def test_a_known_key_stays_good_while_the_database_is_away_and_an_unknown_one_is_not_judged():
    clock, database = Clock(), Database()
    cache = KeyCache(database.load, 1.0, clock)
    await cache.find("good")
    database.away, clock.now = True, 100.0
    assert await cache.find("good") == database.key
    try:
        await cache.find("new")
    except StoreUnavailable as error:
        assert error.code == "database_down"
    else:
        raise AssertionError("an unknown key was judged without a database")


async def test_a_database_that_does_not_answer_holds_no_known_key_up_and_is_asked_once():
    clock, database = Clock(), Database()
    cache = KeyCache(database.load, 1.0, clock)
    await cache.find("good")
    database.answers.clear()
    clock.now = 5.0
    found = await asyncio.gather(*(cache.find("good") for _ in range(50)))
    assert found == [database.key] * 50
    clock.now = 9.0
    assert await cache.find("good") == database.key
    assert database.asked == 2
    database.answers.set()


async def test_a_request_that_is_cancelled_takes_nobody_else_along():
    database = Database()
    database.answers.clear()
    cache = KeyCache(database.load, 1.0, Clock())
    first, second = asyncio.create_task(cache.find("good")), asyncio.create_task(cache.find("good"))
    await asyncio.sleep(0)
    first.cancel()
    database.answers.set()
    assert await second == database.key
    assert database.asked == 1


async def test_memory_is_bounded_whatever_clients_try():
    database = Database()
    cache = KeyCache(database.load, 1.0, Clock())
    for number in range(1000):
        await cache.find(f"guess-{number}")
    assert len(cache._entries) == 0
