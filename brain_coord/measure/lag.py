"""How late the coordinator's own event loop runs, so that nodes are not blamed for it."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

PERIOD_S: Final = 0.25
STALL_S: Final = 0.25
"""Lateness of the loop above which samples taken across it are discarded."""

KEEP_S: Final = 600.0


@dataclass(slots=True)
class LoopLag:
    """Stalls of the event loop, fed with the times at which a periodic tick really came."""

    _expected: float | None = None
    _stalls: deque[tuple[float, float]] = field(default_factory=deque)
    last_s: float = 0.0

    def tick(self, now: float) -> float:
        """One tick came at `now`; returns its lateness in seconds."""
        late = 0.0 if self._expected is None else max(0.0, now - self._expected)
        if late > STALL_S:
            self._stalls.append((now - late, now))
        while self._stalls and self._stalls[0][1] < now - KEEP_S:
            self._stalls.popleft()
        self._expected = now + PERIOD_S
        self.last_s = late
        return late

    def stalled_s(self, since: float, now: float) -> float:
        """Seconds between `since` and `now` in which the loop stood still, a stall still going on included."""
        total = 0.0
        if self._stalls and self._stalls[-1][1] > since:
            total = sum(max(0.0, min(end, now) - max(start, since)) for start, end in self._stalls)
        if self._expected is not None and now - self._expected > STALL_S:
            total += now - max(self._expected, since)
        return total

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            self.tick(monotonic())
            await asyncio.sleep(PERIOD_S)
