"""When running jobs have to be over: one timer for all of them, as nearly every job ends long before its time."""

import asyncio
import math
from time import monotonic
from typing import Final, Protocol

_SOON_S: Final = 0.001


class Timed(Protocol):
    """Something that has to be over by a time."""

    def timed_out(self) -> None:
        """It is not."""


class Deadlines:
    """Tells jobs that their time is over. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._due: dict[Timed, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = math.inf

    def add(self, job: Timed, due: float) -> None:
        """Tell `job` at `due`, unless it is dropped before."""
        self._due[job] = due
        if due < self._look_at:
            self._look_later(due)

    def drop(self, job: Timed) -> None:
        """The job is over."""
        self._due.pop(job, None)

    def close(self) -> None:
        """Tell nobody any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = due
        self._timer = asyncio.get_running_loop().call_later(max(_SOON_S, due - monotonic()), self._look)

    def _look(self) -> None:
        self._timer, self._look_at = None, math.inf
        now = monotonic()
        for job in [job for job, due in self._due.items() if due <= now]:
            self.drop(job)
            job.timed_out()
        if self._due:
            self._look_later(min(self._due.values()))
