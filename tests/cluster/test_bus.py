"""The messages between coordinators over a real Redis."""

import asyncio
from typing import Any

import pytest

from brain_coord.cluster.bus import Bus
from brain_coord.cluster.secret import ClusterSecret
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def _nothing() -> None:
    pass


async def test_what_is_sent_later_is_heard_later_however_much_was_sent_before_it(redis):
    heard: list[Any] = []
    bus = Bus(redis.url, ClusterSecret("s" * 40), lambda message: heard.append(message["n"]), _nothing)
    running = asyncio.create_task(bus.run())
    try:
        await eventually(lambda: bus.connected)
        much = [{"n": number, "text": "x" * 500_000} for number in range(10)]
        await asyncio.gather(bus.send(much), bus.send([{"n": 10}]))
        await eventually(lambda: len(heard) == 11)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bus.close()
    assert heard == list(range(11))
