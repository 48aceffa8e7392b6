"""A limit on a wait: it ends what is late, can be moved, and leaves the cancellations of others alone."""

import asyncio
import socket
import time
from time import monotonic

import pytest

from brain_coord.gateway.deadline import LATE_S, NEVER, Deadline


async def test_what_is_late_ends_with_a_timeout_and_the_task_goes_on():
    with pytest.raises(TimeoutError), Deadline(monotonic() + 0.02, 60):
        await asyncio.Event().wait()
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0)


async def test_what_is_over_in_time_is_left_alone():
    with Deadline(monotonic() + 0.2, 60):
        await asyncio.sleep(0)
    await asyncio.sleep(0.25)


async def test_a_time_that_has_passed_already_ends_the_first_wait():
    with pytest.raises(TimeoutError), Deadline(monotonic() - 1, 60):
        await asyncio.Event().wait()


async def test_a_block_that_waits_for_nothing_leaves_nothing_to_what_comes_behind_it():
    with pytest.raises(KeyError), Deadline(monotonic() - 1.0, every_s=1.0):
        raise KeyError
    await asyncio.sleep(0)


async def test_a_limit_moves_to_a_later_time_to_none_and_to_an_earlier_one():
    began = monotonic()
    with pytest.raises(TimeoutError), Deadline(began + 0.02, every_s=0.02) as deadline:
        deadline.by = began + 0.1
        await asyncio.sleep(0.05)
        deadline.by = NEVER
        await asyncio.sleep(0.1)
        deadline.by = monotonic() + 0.05
        await asyncio.Event().wait()
    assert monotonic() - began >= 0.15


async def test_without_a_limit_nothing_ends_until_there_is_one():
    with pytest.raises(TimeoutError), Deadline(NEVER, every_s=0.02) as deadline:
        await asyncio.sleep(0.05)
        deadline.by = monotonic()
        await asyncio.Event().wait()


async def test_no_move_goes_beyond_the_end_of_the_whole():
    with pytest.raises(TimeoutError), Deadline(monotonic() + 60, every_s=0.02) as deadline:
        deadline.end = monotonic() + 0.03
        for _ in range(100):
            deadline.by = monotonic() + 60
            await asyncio.sleep(0.01)
        pytest.fail("it went on")


async def test_a_cancellation_by_somebody_else_stays_one():
    async def work():
        with Deadline(monotonic() + 60, 60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_late_and_cancelled_at_once_is_cancelled():
    async def work():
        with Deadline(monotonic() - 1, 60):
            asyncio.current_task().cancel()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())


async def test_the_inner_of_two_limits_does_not_take_the_outer_ones_end():
    with pytest.raises(TimeoutError), Deadline(monotonic() + 0.02, 60):
        try:
            with Deadline(monotonic() + 60, 60):
                await asyncio.Event().wait()
        except TimeoutError:
            pytest.fail("the inner limit had not come")


async def test_an_error_of_the_block_is_not_hidden():
    with pytest.raises(KeyError), Deadline(monotonic() + 60, 60):
        raise KeyError


async def test_what_came_while_our_own_loop_stood_still_is_read_before_anybody_is_late():
    loop, (here, there) = asyncio.get_running_loop(), socket.socketpair()
    with here, there:
        here.setblocking(False)
        for _ in range(3):
            with Deadline(monotonic() + 0.05, every_s=60):
                reading = asyncio.ensure_future(loop.sock_recv(here, 1))
                await asyncio.sleep(0)
                time.sleep(0.1 + LATE_S)  # noqa: ASYNC251 — the loop is to stand still
                there.send(b"x")
                assert await reading == b"x"


async def test_whoever_says_nothing_is_late_also_when_our_loop_stood_still():
    with pytest.raises(TimeoutError), Deadline(monotonic() + 0.05, every_s=60):
        await asyncio.sleep(0)
        time.sleep(0.1 + LATE_S)  # noqa: ASYNC251 — the loop is to stand still
        await asyncio.Event().wait()
