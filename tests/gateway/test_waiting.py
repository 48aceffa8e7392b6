"""The queue for free slots: bounded, fair between keys, and exact whatever happens to those who wait."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brain_coord.gateway.waiting import QueueFull, Waiter, WaitingRoom

ANY = "any"
LONG_S = 60.0


def awake(waiters: list[Waiter]) -> list[Waiter]:
    return [waiter for waiter in waiters if waiter.awake]


def test_keys_take_turns_and_a_key_keeps_its_own_order():
    room = WaitingRoom(100)
    greedy = [room.enter("greedy", ANY, 100) for _ in range(4)]
    modest = [room.enter("modest", ANY, 100) for _ in range(2)]
    served = []
    for _ in range(6):
        room.capacity()
        waiting = [each for each in greedy + modest if each not in served]
        (waiter,) = awake(waiting)
        served.append(waiter)
        room.leave(waiter, served=True)
        for other in waiting:
            other.awake = False  # the next one was woken, and found nothing
    assert served == [greedy[0], modest[0], greedy[1], modest[1], greedy[2], greedy[3]]


def test_a_key_that_always_has_just_one_waiting_does_not_starve_the_others():
    room = WaitingRoom(100)
    others = [room.enter("many", ANY, 100) for _ in range(10)]
    waiter, order = room.enter("one", ANY, 100), []
    for _ in range(8):
        room.capacity()
        (woken,) = awake([waiter, *others])
        order.append(woken.key)
        room.leave(woken, served=True)
        if woken is waiter:
            waiter = room.enter("one", ANY, 100)
        else:
            others.remove(woken)
        for each in awake([waiter, *others]):
            each.awake = False
    assert order.count("many") == order.count("one") == 4


def test_one_request_of_a_lane_is_woken_at_a_time_and_the_next_when_it_was_served():
    room = WaitingRoom(10)
    first, second = room.enter("a", ANY, 10), room.enter("b", ANY, 10)
    room.capacity()
    room.capacity()
    assert (first.awake, second.awake) == (True, False)
    room.leave(first, served=True)
    assert second.awake  # there may be more than one free slot


def test_what_one_lane_cannot_use_another_may():
    room = WaitingRoom(10)
    small, large = room.enter("a", "small", 10), room.enter("a", "large", 10)
    room.capacity()
    assert small.awake
    assert large.awake


def test_the_lanes_too_are_woken_in_the_order_of_their_keys_turns():
    woken: list[str] = []

    class Recorded(Waiter):
        __slots__ = ()

        def wake(self) -> None:
            woken.append(self.key)
            super().wake()

    room = WaitingRoom(10)
    room._took_turn("a")
    for key, lane in (("a", "x"), ("b", "y"), ("a", "z")):
        waiter = room.enter(key, lane, 10)
        waiter.__class__ = Recorded
    room._turns["a"] = 1
    room.capacity()
    assert woken == ["b", "a", "a"]


def test_a_request_that_was_woken_and_leaves_passes_its_turn_on():
    room = WaitingRoom(10)
    first, second = room.enter("a", ANY, 10), room.enter("b", ANY, 10)
    room.capacity()
    room.leave(first, served=False)
    assert second.awake


def test_a_request_that_leaves_unwoken_wakes_nobody():
    room = WaitingRoom(10)
    first, second = room.enter("a", ANY, 10), room.enter("b", ANY, 10)
    room.leave(first, served=False)
    assert not second.awake


def test_the_queue_is_bounded_as_a_whole_and_for_each_key():
    room = WaitingRoom(3)
    room.enter("a", ANY, 2)
    room.enter("a", ANY, 2)
    with pytest.raises(QueueFull) as full:
        room.enter("a", ANY, 2)
    assert full.value.own
    room.enter("b", ANY, 2)
    with pytest.raises(QueueFull) as full:
        room.enter("c", ANY, 2)
    assert not full.value.own


def test_a_request_that_comes_back_gets_its_old_place():
    room = WaitingRoom(10)
    first, second = room.enter("a", ANY, 10), room.enter("a", ANY, 10)
    room.leave(first, served=False)
    again = room.enter("a", ANY, 10, order=first.order)
    room.capacity()
    assert (again.awake, second.awake) == (True, False)


async def test_waiting_ends_when_the_time_is_up():
    room = WaitingRoom(10)
    waiter = room.enter("a", ANY, 10)
    assert await waiter.woken(0.01) is False
    room.leave(waiter, served=False)
    assert len(room) == 0


async def test_capacity_that_comes_in_the_last_moment_is_not_lost():
    room = WaitingRoom(10)
    first, second = room.enter("a", ANY, 10), room.enter("b", ANY, 10)
    waiting = asyncio.create_task(first.woken(LONG_S))
    await asyncio.sleep(0)
    room.capacity()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    room.leave(first, served=False)
    assert second.awake


async def test_a_request_that_found_nothing_waits_on_in_its_place():
    room = WaitingRoom(10)
    first, second = room.enter("a", ANY, 10), room.enter("b", ANY, 10)
    for _ in range(2):
        waiting = asyncio.create_task(first.woken(LONG_S))
        await asyncio.sleep(0)
        room.capacity()
        assert await waiting is True
    assert not second.awake
    room.leave(first, served=False)


class Room(RuleBasedStateMachine):
    """Random arrivals, capacity and departures beside a model of what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.room = WaitingRoom(12)
        self.waiting: list[Waiter] = []

    @rule(key=st.sampled_from("abc"), lane=st.sampled_from("xy"))
    def arrive(self, key: str, lane: str) -> None:
        own = sum(waiter.key == key for waiter in self.waiting)
        if own >= 6 or len(self.waiting) >= 12:
            with pytest.raises(QueueFull):
                self.room.enter(key, lane, 6)
        else:
            self.waiting.append(self.room.enter(key, lane, 6))

    @rule()
    def capacity(self) -> None:
        self.room.capacity()
        for lane in {waiter.lane for waiter in self.waiting}:
            assert any(waiter.awake for waiter in self.waiting if waiter.lane == lane)

    @precondition(lambda self: any(waiter.awake for waiter in self.waiting))
    @rule(data=st.data(), served=st.booleans())
    def decide(self, data: st.DataObject, served: bool) -> None:
        waiter = data.draw(st.sampled_from([each for each in self.waiting if each.awake]))
        self.waiting.remove(waiter)
        self.room.leave(waiter, served=served)
        if any(each.lane == waiter.lane for each in self.waiting):
            assert any(each.awake for each in self.waiting if each.lane == waiter.lane), "a turn was lost"

    @precondition(lambda self: any(waiter.awake for waiter in self.waiting))
    @rule(data=st.data())
    def find_nothing(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([each for each in self.waiting if each.awake])).awake = False

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(waiter)
        self.room.leave(waiter, served=False)

    @invariant()
    def counts_are_exact(self) -> None:
        assert len(self.room) == len(self.waiting)
        for key in "abc":
            assert self.room.waiting(key) == sum(waiter.key == key for waiter in self.waiting)
        assert set(self.room._lanes) == {waiter.lane for waiter in self.waiting}

    @invariant()
    def one_of_a_lane_is_awake_at_most(self) -> None:
        for lane in "xy":
            assert sum(waiter.awake for waiter in self.waiting if waiter.lane == lane) <= 1

    @invariant()
    def an_empty_room_remembers_nothing(self) -> None:
        if not self.waiting:
            assert not self.room._counts
            assert not self.room._lanes


TestRoom = Room.TestCase


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
def test_of_keys_that_all_wait_on_none_gets_two_turns_more_than_another(arrivals):
    room, served = WaitingRoom(100), []
    waiters = [room.enter(key, ANY, 100) for key in arrivals]
    while waiters:
        room.capacity()
        (waiter,) = awake(waiters)
        waiters.remove(waiter)
        room.leave(waiter, served=True)
        served.append(waiter.key)
        for each in awake(waiters):
            each.awake = False
        still = {each.key for each in waiters}
        counts = {key: served.count(key) for key in still}
        assert not counts or max(counts.values()) - min(counts.values()) <= 1
    assert sorted(served) == sorted(arrivals)
