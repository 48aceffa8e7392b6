"""How much the machine itself held things up: what a test measures against a limit may be late by that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final

TICK_S: Final = 0.02


@dataclass
class Stalls:
    """The longest time for which a task of this process that was ready did not run."""

    worst_s: float = 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    """Watch while the block runs."""
    seen = Stalls()

    async def watch() -> None:
        while True:
            due = monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            seen.worst_s = max(seen.worst_s, monotonic() - due)

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
