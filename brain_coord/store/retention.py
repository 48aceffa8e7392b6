"""Bounds the store: what has grown old, or is more than anybody reads, is deleted a little at a time while requests go on."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.store import Store

log = structlog.get_logger("brain.store")

PERIOD_S: Final = 600.0
DAY_S: Final = 86_400.0

OUTCOMES_DAYS: Final = 8
"""A score looks back seven days; outcomes, uptime and what tabs did are kept for one more."""

OUTCOMES_KEPT: Final = 600
"""Of each node: as many as are read back at a start."""


@dataclass(slots=True)
class Retention:
    """Deletes what need not be kept.

    Attributes:
        store: what is bounded.
        receipts_days: for how long receipts of this coordinator's chain are kept; 0 for ever.
        shared_is_ours: whether this coordinator looks after what several share; only one of a cluster does.
    """

    store: Store
    receipts_days: float
    shared_is_ours: Callable[[], bool] = lambda: True
    _ahead_s: float | None = None
    """How far the wall clock was ahead of the monotonic one at the last look."""

    async def run(self) -> None:
        """Look now and then; runs for ever."""
        while True:
            await self.tick(self.steady(time.time(), monotonic()))
            await asyncio.sleep(PERIOD_S)

    def steady(self, wall_s: float, now: float) -> float:
        """The wall time by which something is old, as the clock says now and said a period ago: a jump must last to count.

        What a clock that was years ahead for a moment made old would be gone for good.
        """
        ahead_s, before_s = wall_s - now, self._ahead_s
        self._ahead_s = ahead_s
        return now + (ahead_s if before_s is None else min(ahead_s, before_s))

    async def tick(self, now_s: float) -> int:
        """Delete everything that need not be kept at `now_s` (wall time); returns how many rows went."""
        ours = self.shared_is_ours()
        try:
            gone = await self.store.prune(
                receipts_before_s=now_s - self.receipts_days * DAY_S if self.receipts_days > 0 else None,
                outcomes_before_s=now_s - OUTCOMES_DAYS * DAY_S if ours else None,
            )
            if ours:
                gone += await self.store.thin_outcomes(OUTCOMES_KEPT)
        except StoreUnavailable as error:
            log.info("nothing old was deleted", cause=str(error))
            return 0
        if gone:
            log.info("old rows deleted", count=gone)
        return gone
