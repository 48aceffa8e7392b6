"""One timer tells every job whose time is over, and nobody else."""

import asyncio

from brain_node.relay import deadlines
from brain_node.relay.deadlines import Deadlines


class Clock:
    """Time as the deadlines see it."""

    def __init__(self, monkeypatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(deadlines, "monotonic", lambda: self.now)


class Timed:
    def __init__(self) -> None:
        self.told = asyncio.Event()

    def timed_out(self) -> None:
        assert not self.told.is_set(), "told once"
        self.told.set()


async def test_only_those_whose_time_is_over_are_told(monkeypatch):
    clock, times = Clock(monkeypatch), Deadlines()
    late, early, done = Timed(), Timed(), Timed()
    times.add(late, 2000.0)
    times.add(early, 1000.001)
    times.add(done, 1000.001)
    times.drop(done)
    clock.now = 1001.0
    await asyncio.wait_for(early.told.wait(), 10)
    assert not late.told.is_set()
    assert not done.told.is_set()
    times.close()


async def test_the_next_one_is_told_after_the_first(monkeypatch):
    clock, times = Clock(monkeypatch), Deadlines()
    first, second = Timed(), Timed()
    times.add(first, 1000.0)
    times.add(second, 1000.002)
    await asyncio.wait_for(first.told.wait(), 10)
    clock.now = 1000.002
    await asyncio.wait_for(second.told.wait(), 10)
    times.close()


async def test_a_timer_that_goes_off_too_early_looks_again(monkeypatch):
    clock, times = Clock(monkeypatch), Deadlines()
    job = Timed()
    times.add(job, 1000.003)
    times._look()
    assert not job.told.is_set()
    clock.now = 1000.003
    await asyncio.wait_for(job.told.wait(), 10)
    times.close()
