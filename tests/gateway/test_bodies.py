"""Request bodies share a bounded memory: large ones are told to come back, small ones always get through."""

import asyncio

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.gateway.bodies import SMALL_BYTES, BodyBudget
from brain_coord.gateway.errors import ApiError
from tests.support.configured import Configured
from tests.support.coordinator import eventually
from tests.support.fake_openai import FakeOpenAi, chat, silence
from tests.support.raw_client import RawClient

MIB = 1024 * 1024
TIGHT = "[limits]\nbody_mib = 1\nbodies_mib = 1\n"
LARGE = [{"role": "user", "content": "x" * 700_000}]


def test_what_does_not_fit_is_told_to_come_back_and_takes_nothing():
    budget = BodyBudget(10 * SMALL_BYTES)
    first, second = budget.lease("one"), budget.lease("other")
    first.grow(8 * SMALL_BYTES)
    with pytest.raises(ApiError) as refused:
        second.grow(3 * SMALL_BYTES)
    assert (refused.value.status, refused.value.code, refused.value.retry_after_s) == (503, "bodies_full", 2)
    second.grow(SMALL_BYTES)
    assert budget.held_bytes == 8 * SMALL_BYTES
    first.release()
    second.grow(3 * SMALL_BYTES)
    assert budget.held_bytes == 3 * SMALL_BYTES


def test_a_body_is_refused_before_it_comes_when_it_could_not_be_held():
    budget = BodyBudget(10 * SMALL_BYTES)
    lease = budget.lease("one")
    lease.grow(9 * SMALL_BYTES)
    lease.check(10 * SMALL_BYTES)  # its own part counts once
    with pytest.raises(ApiError):
        budget.lease("other").check(2 * SMALL_BYTES)
    assert budget.held_bytes == 9 * SMALL_BYTES


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20 * SMALL_BYTES), st.booleans()), max_size=60))
def test_whatever_comes_and_goes_the_count_is_exact_and_within_the_limit(steps):
    budget = BodyBudget(16 * SMALL_BYTES)
    leases = [budget.lease(key) for key in ("one", "one", "other", "", "", None)]
    for at, size, ends in steps:
        if ends:
            leases[at].release()
            continue
        try:
            leases[at].grow(max(size, leases[at].held_bytes))
            of_it = [each.held_bytes for each in leases if each.key == leases[at].key and each.held_bytes]
            if len(of_it) > 1 and leases[at].key is not None and size > SMALL_BYTES:
                assert sum(of_it) <= budget.limit_bytes - budget.held_bytes, "several leave as much as they hold"
        except ApiError:
            assert size > SMALL_BYTES
        assert budget.held_bytes == sum(each.held_bytes for each in leases) <= budget.limit_bytes
    for each in leases:
        each.release()
        each.release()
    assert (budget.held_bytes, dict(budget.by_key)) == (0, {})


def test_a_key_that_takes_all_it_can_leaves_room_for_the_next_and_that_one_for_a_third():
    budget = BodyBudget(64 * SMALL_BYTES)
    held = []
    for key in ("greedy", "second", "third"):
        leases = [budget.lease(key) for _ in range(64)]
        with pytest.raises(ApiError) as refused:
            for lease in leases:
                lease.grow(2 * SMALL_BYTES)
        held.append(budget.by_key[key] // SMALL_BYTES)
    assert held == [32, 16, 8]
    assert "this key's large requests" in refused.value.message


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with Configured(tmp_path_factory.mktemp("coord") / "data", TIGHT) as running:
        yield running


def held(coordinator: Configured) -> int:
    lines = httpx.get(f"{coordinator.url}/metrics", trust_env=False, timeout=60).text.splitlines()
    return int(float(next(line for line in lines if line.startswith("brain_request_bodies_bytes ")).split()[1]))


async def until(coordinator: Configured, size: int) -> None:
    await asyncio.to_thread(eventually, lambda: held(coordinator) == size)


async def test_while_a_large_request_runs_another_waits_outside_and_small_ones_are_served(coordinator):
    async with FakeOpenAi("slow", script=silence) as slow, FakeOpenAi("quick", script=chat()) as quick:
        coordinator.reload(TIGHT, slow.toml("cloud", "slow", probe_s=0), quick.toml("cloud", "quick", probe_s=0))
        holding = asyncio.create_task(coordinator.chat("slow", messages=LARGE))
        await asyncio.to_thread(eventually, lambda: slow.running == 1)
        refused = await coordinator.chat("quick", messages=LARGE)
        small = await coordinator.chat("quick")
        assert await asyncio.to_thread(held, coordinator) > 700_000
        holding.cancel()
        await until(coordinator, 0)
        again = await coordinator.chat("quick", messages=LARGE)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "bodies_full")
    assert refused.headers["retry-after"] == "2"
    assert (small.status_code, again.status_code) == (200, 200)
    assert quick.calls == 2
    await until(coordinator, 0)


async def test_an_announced_body_holds_only_what_came_of_it(coordinator):
    async with RawClient(coordinator.url, coordinator.secret) as client:
        await client.send(client.head_of("POST", "/v1/chat/completions", content_length=str(MIB - 1)))
        await client.send(b"x" * 200_000)
        await until(coordinator, 200_000)
    await until(coordinator, 0)


async def test_the_quiet_routes_share_it(coordinator):
    async with RawClient(coordinator.url, coordinator.secret) as client:
        await client.send(client.head_of("POST", "/v1/route", content_length=str(MIB - 1)))
        await client.send(b"x" * 900_000)
        await until(coordinator, 900_000)
        refused = await coordinator.chat("m", messages=LARGE)
        async with coordinator.http() as http:
            route = await http.post("/v1/route", json={"model": "m", "messages": LARGE})
        async with coordinator.http() as http:
            form = await http.post("/network/operator/login", data={"secret": "x" * 100_000})
    assert form.status_code == 413, "a stranger's form cannot use it up"
    assert [refused.status_code, route.status_code] == [503, 503]
    assert route.json()["error"]["code"] == "bodies_full"


async def test_a_form_that_never_comes_ends_and_one_that_breaks_off_is_no_fault_of_the_coordinator(coordinator):
    coordinator.reload(TIGHT + "body_idle_s = 0.2\n")
    async with RawClient(coordinator.url) as client:
        await client.send(client.head_of("POST", "/network/operator/login", content_length="100") + b"secret=")
        assert (await client.answer()).status == 408
    start = seen = len(coordinator.program.lines)
    for path in ("/network/operator/login", "/v1/route", "/v1/compute/matmul"):
        async with RawClient(coordinator.url, coordinator.secret) as client:
            await client.send(client.head_of("POST", path, content_length="100") + b"{")
        coordinator.program.wait_for("client left before the request was whole", start=seen)
        seen = len(coordinator.program.lines)
    assert not any('"level": "error"' in line for line in coordinator.program.lines[start:])
