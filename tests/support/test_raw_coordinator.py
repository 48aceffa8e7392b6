"""The hand-made coordinator: a test that fails on it ends."""

import asyncio

import pytest

from tests.support.node_doubles import Linked
from tests.support.raw_coordinator import RawCoordinator


async def test_a_test_that_fails_ends_though_its_answer_to_a_hello_still_waits():
    came = asyncio.Event()

    async def wait(_):
        came.set()
        await asyncio.Event().wait()

    async def failing():
        async with RawCoordinator() as coordinator:
            coordinator.on_hello = wait
            async with Linked(coordinator.url):
                await came.wait()
                raise ValueError("the test failed")

    with pytest.raises(ValueError, match="the test failed"):
        await asyncio.wait_for(failing(), 10)
