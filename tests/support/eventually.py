"""Waiting for something that another task or process will do, with a generous limit instead of a guess."""

import asyncio
import itertools
from collections.abc import Callable

LIMIT_S = 20.0


async def eventually(condition: Callable[[], object], limit_s: float = LIMIT_S, every_s: float = 0.005) -> None:
    """Return once the condition holds; `TimeoutError` when it does not within the limit."""
    async with asyncio.timeout(limit_s):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(every_s)
