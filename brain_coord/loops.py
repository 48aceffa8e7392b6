"""What goes on by itself for as long as the coordinator runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

log = structlog.get_logger("brain.coordinator")

AGAIN_S: Final = 1.0


async def for_ever(loop: Callable[[], Awaitable[None]]) -> None:
    """Run a loop; when a fault of ours ends it, it is logged and the loop begins again.

    A coordinator that goes on without, say, noticing silent nodes looks well and is not.
    """
    while True:
        try:
            await loop()
        except Exception:
            name = getattr(loop, "__qualname__", repr(loop))
            log.exception("a fault of the coordinator: a loop broke off, and begins again", loop=name)
            await asyncio.sleep(AGAIN_S)
        else:
            return
