"""A crowd of joins leaves room for everybody else."""

import asyncio

from brain_coord.link.turnstile import Turnstile


async def test_without_a_crowd_nobody_waits():
    turnstile = Turnstile(at_once=3)
    for _ in range(3):
        async with asyncio.timeout(20):
            await turnstile.enter()
    assert len(turnstile) == 0


async def test_a_crowd_passes_in_order_a_few_in_each_pass_of_the_loop():
    turnstile, passed, passes = Turnstile(at_once=3), [], []

    async def join(number):
        await turnstile.enter()
        passed.append(number)

    async def somebody_else():
        while len(passed) < 60:
            passes.append(len(passed))
            await asyncio.sleep(0)

    await asyncio.gather(*(join(number) for number in range(60)), somebody_else())
    assert passed == list(range(60))
    assert max(after - before for before, after in zip(passes, passes[1:], strict=False)) <= 3  # noqa: RUF007
    assert len(turnstile) == 0


async def test_steps_that_are_called_take_their_turn_among_those_who_wait():
    turnstile, passed = Turnstile(at_once=1), []

    async def join(number):
        await turnstile.enter()
        passed.append(number)

    turnstile.call(lambda: passed.append(0))
    waiting = asyncio.create_task(join(1))
    await asyncio.sleep(0)
    turnstile.call(lambda: passed.append(2))
    async with asyncio.timeout(20):
        await waiting
        while len(turnstile):  # noqa: ASYNC110 — passes of the loop are what is counted here
            await asyncio.sleep(0)
    assert passed == [0, 1, 2]


async def test_one_who_gives_up_takes_nobodys_place():
    turnstile = Turnstile(at_once=1)
    tasks = [asyncio.create_task(turnstile.enter()) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[2].cancel()
    async with asyncio.timeout(20):
        await asyncio.gather(tasks[0], tasks[3], tasks[4])


async def test_it_turns_again_after_a_crowd_is_gone():
    turnstile = Turnstile(at_once=1)
    for _ in range(3):
        async with asyncio.timeout(20):
            await asyncio.gather(*(turnstile.enter() for _ in range(4)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
