"""Limits of keys over several coordinators, against a real Redis: exact while it is there, per coordinator while it is not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

import pytest

from brain_coord.cluster.bus import Bus
from brain_coord.cluster.meters import ClusterMeters
from brain_coord.cluster.secret import ClusterSecret
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.http import pairs_of
from brain_coord.gateway.limits import KeyMeters, Permit, PlanLimits
from brain_coord.routing.vocabulary import Plan
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CALLER = Caller("k-1", Plan.FREE)


class Counting:
    """The meters of one coordinator, as the gateway uses them."""

    def __init__(self, url: str, name: str, limits: PlanLimits, ttl_s: float) -> None:
        self.local = KeyMeters({Plan.FREE: limits, Plan.PAID: limits})
        secret = ClusterSecret("s" * 40)
        self.bus = Bus(url, secret, lambda _: None, self._came)
        self.shared = ClusterMeters(self.bus, self.local, secret.prefix, name, ttl_s)
        self._tasks = [asyncio.create_task(self.bus.run()), asyncio.create_task(self.shared.run())]

    async def _came(self) -> None:
        self.shared.recount()

    async def admit(self) -> Permit | ApiError:
        try:
            permit = self.local.admit(CALLER, monotonic())
        except ApiError as error:
            return error
        try:
            await self.shared.admit(CALLER, permit)
        except ApiError as error:
            permit.release()
            return error
        return permit

    async def told(self) -> dict[bytes, bytes]:
        return await self.bus.redis.hgetall(ClusterSecret("s" * 40).prefix + "key:k-1")

    async def die(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bus.close()


@contextlib.asynccontextmanager
async def two(
    url: str, *, per_min: int = 600_000, concurrent: int = 1000, ttl_s: float = 60.0
) -> AsyncIterator[list[Counting]]:
    limits = PlanLimits(per_min, concurrent, 1.0)
    pair = [Counting(url, name, limits, ttl_s) for name in ("a", "b")]
    try:
        await eventually(lambda: all(each.bus.connected for each in pair))
        yield pair
    finally:
        for each in pair:
            await each.die()


async def until(check: Callable[[], Awaitable[object]]) -> None:
    """Until an answer of Redis is as it must become."""
    async with asyncio.timeout(20):
        while not await check():  # noqa: ASYNC110 — Redis tells nobody
            await asyncio.sleep(0.02)


def admitted(results: list[Permit | ApiError]) -> list[Permit]:
    return [each for each in results if isinstance(each, Permit)]


async def test_requests_a_minute_are_counted_together(redis):
    async with two(redis.url, per_min=6) as (a, b):
        began = monotonic()
        results = [await each.admit() for _ in range(10) for each in (a, b)]
        assert 6 <= len(admitted(results)) <= 6 + (monotonic() - began) * 6 / 60
        refused = next(each for each in results if isinstance(each, ApiError))
        assert (refused.status, refused.code) == (429, "rate_limited")
        assert refused.retry_after_s is not None
        assert dict(refused.headers)[b"x-ratelimit-remaining-requests"] == b"0"
        first = results[0]
        assert isinstance(first, Permit)
        assert dict(pairs_of(first.lines))[b"x-ratelimit-remaining-requests"] == b"5"


async def test_a_request_that_is_left_but_for_a_rounding_is_counted_when_it_is_given(redis):
    async with two(redis.url, per_min=60) as (a, b):
        key, later = ClusterSecret("s" * 40).prefix + "key:k-1", "9" * 13  # nothing comes back meanwhile
        await a.bus.redis.hset(key, mapping={"left": "0.9999996", "at": later})
        first = await a.admit()
        assert isinstance(first, Permit)
        await a.bus.redis.hset(key, "at", later)
        assert isinstance(await b.admit(), ApiError)


async def test_a_refused_request_counts_for_nothing(redis):
    async with two(redis.url, concurrent=1) as (a, b):
        held = await a.admit()
        left = [meter.left for meter in b.local._meters.values()]
        assert isinstance(await b.admit(), ApiError)
        assert b.local.running == 0
        assert all(meter.left >= before for meter, before in zip(b.local._meters.values(), left, strict=False))
        assert isinstance(held, Permit)


async def test_requests_at_a_time_are_counted_together_and_exactly(redis):
    async with two(redis.url, concurrent=10) as (a, b):
        results = await asyncio.gather(*(each.admit() for _ in range(20) for each in (a, b)))
        running = admitted(results)
        assert len(running) == 10
        for permit in running[:4]:
            permit.release()
        await eventually(lambda: not a.shared._changed | b.shared._changed)

        async def some() -> int:
            return len(admitted(await asyncio.gather(*(each.admit() for _ in range(20) for each in (a, b)))))

        got = 0

        async def all_back() -> bool:
            nonlocal got
            got += await some()
            return got >= 4

        await until(all_back)
        assert got == 4


async def test_the_end_of_a_request_is_known_at_once(redis):
    async with two(redis.url, concurrent=1) as (a, b):
        for _ in range(20):
            for here, there in ((a, b), (b, a)):
                permit = await here.admit()
                assert isinstance(permit, Permit)
                assert isinstance(await there.admit(), ApiError)
                permit.release()

                async def free() -> bool:
                    return not any(value.startswith(b"1:") for value in (await a.told()).values())

                await until(free)


async def test_what_a_coordinator_that_died_was_running_runs_out(redis):
    async with two(redis.url, concurrent=1, ttl_s=0.5) as (a, b):
        assert isinstance(await a.admit(), Permit)
        assert isinstance(await b.admit(), ApiError)
        await a.die()

        async def free() -> bool:
            return isinstance(await b.admit(), Permit)

        await until(free)


async def test_without_redis_each_holds_the_limit_for_itself_and_together_again_when_it_is_back(redis):
    async with two(redis.url, concurrent=2) as (a, b):
        redis.kill()
        await eventually(lambda: not a.bus.connected and not b.bus.connected)
        running = [await each.admit() for each in (a, a, a, b, b, b)]
        assert [isinstance(each, Permit) for each in running] == [True, True, False] * 2
        redis.start()
        await eventually(lambda: a.bus.connected and b.bus.connected)

        async def counted() -> int:
            return sum(int(value.split(b":")[0]) for name, value in (await a.told()).items() if name.startswith(b"on:"))

        async def four() -> bool:
            return await counted() == 4

        async def one() -> bool:
            return await counted() == 1

        await until(four)
        for permit in admitted(running)[:3]:
            permit.release()
        await until(one)
        assert isinstance(await a.admit(), Permit)
        assert isinstance(await a.admit(), ApiError)


async def test_an_older_word_that_comes_later_is_not_heard(redis):
    async with two(redis.url) as (a, _):
        late, soon = a.shared._word(5), a.shared._word(3)
        key = [ClusterSecret("s" * 40).prefix + "key:k-1"]
        await a.shared._count(keys=key, args=soon)
        await a.shared._count(keys=key, args=late)
        (value,) = (await a.told()).values()
        assert value.startswith(b"3:")


async def test_however_many_come_at_a_time_all_are_counted(redis):
    async with two(redis.url, concurrent=500) as (a, b):
        lost = []
        a.bus.lost = lost.append
        results = await asyncio.gather(*(a.admit() for _ in range(600)))
        assert (len(admitted(results)), lost) == (500, [])
        assert isinstance(await b.admit(), ApiError)


async def test_a_client_that_leaves_before_it_is_counted_holds_up_nobody(redis):
    async with two(redis.url, concurrent=1) as (a, _):
        redis.freeze()
        leaving, staying = asyncio.create_task(a.admit()), asyncio.create_task(a.admit())
        await asyncio.sleep(0)
        leaving.cancel()
        redis.thaw()
        assert isinstance(await staying, ApiError), "the first still held the one place"


async def test_a_redis_that_cannot_write_is_not_away_and_each_holds_the_limit_for_itself(redis):
    async with two(redis.url, concurrent=1) as (a, b):
        await a.bus.redis.config_set("maxmemory", "1")
        running = [await each.admit() for each in (a, b)]
        assert len(admitted(running)) == 2
        assert "OutOfMemory" in str(a.shared.fault)
        assert a.bus.connected
        assert isinstance(await a.admit(), ApiError)
        await a.bus.redis.config_set("maxmemory", "0")
        a.shared.recount()
        await eventually(lambda: a.shared.fault is None)
        for permit in admitted(running):
            permit.release()
        await until(lambda: _free(a))


async def _free(counting: Counting) -> bool:
    permit = await counting.admit()
    return isinstance(permit, Permit)
