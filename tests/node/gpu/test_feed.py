"""A driver that hangs delays nobody."""

import asyncio
import threading

import pytest

from brain_node.gpu.feed import GpuFeed
from brain_node.gpu.library import Platform
from brain_node.gpu.reader import GpuReader
from brain_node.gpu.records import Inventory
from tests.support.fake_nvml import card


class Driver:
    """A driver call that blocks its thread until it is let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = threading.Event()
        self.go.set()
        self.threads: set[int] = set()

    def read(self) -> Inventory:
        self.calls += 1
        self.threads.add(threading.get_ident())
        self.go.wait()
        return Inventory(driver=str(self.calls))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def driver():
    made = Driver()
    yield made
    made.go.set()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def feed(driver, clock):
    made = GpuFeed(driver.read, clock=clock)
    yield made
    made.close()


async def test_a_reading_is_fresh_when_the_driver_answers(feed):
    reading = await feed.get(patience_s=60)
    assert (reading.inventory.driver, reading.age_s, reading.problems) == ("1", 0.0, ())
    assert (await feed.get(patience_s=60)).inventory.driver == "2"


async def test_every_call_comes_from_one_thread_that_is_not_the_loops(feed, driver):
    await feed.get(patience_s=60)
    await feed.get(patience_s=60)
    assert len(driver.threads) == 1
    assert threading.get_ident() not in driver.threads


@pytest.mark.case("D-01")
async def test_a_hanging_call_stalls_neither_callers_nor_the_loop(feed, driver, clock):
    await feed.get(patience_s=60)
    driver.go.clear()
    clock.now += 5
    waiting = asyncio.create_task(feed.get(patience_s=0.05))
    ticks = 0
    while not waiting.done():
        await asyncio.sleep(0)
        ticks += 1
    assert ticks > 1
    reading = await waiting
    assert (reading.inventory.driver, reading.age_s) == ("1", 5.0)
    clock.now += 45
    assert feed.latest().age_s == 50.0
    (problem,) = feed.latest().problems
    assert problem.code == "nvml_stalled"
    assert "45 s" in problem.message


@pytest.mark.case("D-01")
async def test_hanging_calls_do_not_pile_up(feed, driver):
    driver.go.clear()
    for _ in range(5):
        await feed.get(patience_s=0.01)
    assert driver.calls == 1
    driver.go.set()
    assert (await feed.get(patience_s=60)).inventory.driver == "1"
    assert feed.latest().problems == ()


async def test_callers_at_the_same_time_share_one_call(feed, driver):
    readings = await asyncio.gather(*(feed.get(patience_s=60) for _ in range(8)))
    assert driver.calls == 1
    assert {reading.inventory.driver for reading in readings} == {"1"}


async def test_before_the_first_answer_nothing_is_made_up(feed, driver, clock):
    driver.go.clear()
    reading = await feed.get(patience_s=0.01)
    assert (reading.inventory, reading.age_s) == (Inventory(), None)


async def test_a_caller_that_is_cancelled_leaves_the_call_to_the_others(feed, driver):
    driver.go.clear()
    impatient = asyncio.create_task(feed.get(patience_s=60))
    other = asyncio.create_task(feed.get(patience_s=60))
    await asyncio.sleep(0)
    impatient.cancel()
    driver.go.set()
    assert (await other).inventory.driver == "1"


@pytest.mark.case("D-01")
async def test_the_real_binding_hanging_in_the_driver_is_waited_for_elsewhere(fake):
    fake.cards = [card("A", 8188)]
    fake.write()
    feed = GpuFeed(GpuReader(environment={}, platform=Platform(wsl=False)).read)
    try:
        assert (await feed.get(patience_s=60)).inventory.gpus[0].name == "A"
        fake.system["hang_ms"] = 50
        fake.write()
        stale = await feed.get(patience_s=0.01)
        assert stale.inventory.gpus[0].name == "A"
        assert stale.problems[0].code == "nvml_stalled"
        fake.system["hang_ms"] = 0
        fake.write()
        assert (await feed.get(patience_s=60)).problems == ()
    finally:
        feed.close()


@pytest.mark.parametrize("turns", range(6))
async def test_whoever_asks_can_be_cancelled_in_the_very_moment_in_which_the_answer_comes(feed, driver, turns):
    async def ask_for_ever():
        while True:
            await feed.get(patience_s=60)

    driver.go.clear()
    asking = asyncio.create_task(ask_for_ever())
    await asyncio.sleep(0)
    came = asyncio.Event()
    feed._pending.add_done_callback(lambda _: came.set())
    driver.go.set()
    await came.wait()
    driver.go.clear()
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    done, _ = await asyncio.wait([asking], timeout=1)
    driver.go.set()
    asking.cancel()
    assert done, "an agent would wait for it for ever"
