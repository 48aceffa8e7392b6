"""A limit on how long a block may wait: `asyncio.timeout` on our own clock, at a third of its cost, and moved for nothing.

An attempt goes through several phases with a limit each, and a stream moves its limit with every event. So moving it only
notes the new time; the timer looks at that when it goes off, and sets itself again if it was too early.
"""

import asyncio
from math import inf
from time import monotonic
from types import TracebackType
from typing import Final, Self

NEVER: Final = inf

_SOON_S: Final = 0.01

LATE_S: Final = 0.1
"""A timer that goes off so much too late tells that our own loop stood still."""

READ_S: Final = 0.25
"""So long the block may still wait then: what came meanwhile lies in its connection, and nobody is to blame for that."""


class Deadline:
    """Ends the block with `TimeoutError` when it is late. Enter it once, inside a task.

    Args:
        by: when the phase has to be over, monotonic seconds, or `NEVER`. Set it to another time at any time.
        every_s: the longest time between two looks: a limit that is moved to an earlier time may be seen so much later.

    Attributes:
        end: when the block has to be over, whatever its phase; `NEVER` at first, and set at any time as well.
    """

    end = NEVER
    _late = False
    _excused = -inf
    """The time that had passed while our loop stood still."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, by: float, every_s: float) -> None:
        self.by = by
        self._every_s = every_s

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._wait()  # and cancels nothing at once: a block that waits for nothing would leave that to whatever comes behind it
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._late and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def forgives(self) -> bool:
        """Whether it was the phase that just ended the block. Then that is undone, and the block may go on."""
        if not self._late or self.by > monotonic():
            return False
        self._late = False
        return self._task.uncancel() <= self._cancelling

    def _wait(self) -> None:
        now = monotonic()
        wait_s = max(_SOON_S, min(min(self.by, self.end) - now, self._every_s))
        self._due = now + wait_s
        self._timer = self._loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        now, by = monotonic(), self.by
        if min(by, self.end) > now:
            self._wait()
        elif now > self._due + LATE_S and by != self._excused and self.end > now:
            self._excused = by
            self._timer = self._loop.call_later(READ_S, self._look)
        else:
            self._timer, self._late = None, True
            self._task.cancel()
