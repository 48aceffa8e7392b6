"""Whether an engine makes progress: its jobs' bytes, its counters, its canaries. Pure.

Busy is not dead: a health route that misses proves nothing while work goes on, and no time limit alone ends an engine
that shows progress. Idle is not alive: only a token proves it.
"""

from dataclasses import dataclass

from brain_node.engine.events import Looked
from brain_node.engine.probe import CanaryResult, Marks
from brain_node.engine.timing import Timing


@dataclass(slots=True)
class Vitality:
    """The signs of life of one engine process, since its launch at `life_at` (monotonic seconds)."""

    timing: Timing
    life_at: float
    """The last sign of progress."""
    active: int = 0
    """Jobs that run now."""
    health_misses: int = 0
    canary_out: bool = False
    canary_misses: int = 0
    _busy_from: float = 0.0
    _suspect: bool = False
    _canary_from: float = 0.0
    _next_canary_at: float = 0.0
    _marks: Marks | None = None
    _looks_without_life: int = 0
    _stopped: int = 0

    # --- jobs (called for every chunk: they only note) ------------------------------------------------------------

    def job_started(self, now: float) -> None:
        """A job was given to the engine."""
        if self.active == 0:
            self._busy_from = now
        self.active += 1

    def job_progress(self, now: float) -> None:
        """Bytes of an answer came."""
        self.life_at = now

    def job_finished(self, now: float, *, ok: bool) -> None:
        """A job is over; one that failed or was given up makes an idle engine suspect."""
        self.active = max(0, self.active - 1)
        if ok:
            self.life_at = now
        else:
            self._suspect = True

    # --- probes ---------------------------------------------------------------------------------------------------

    def looked(self, event: Looked, now: float) -> None:
        """Take in a probe."""
        self.health_misses = 0 if event.result.healthy else self.health_misses + 1
        if self.health_misses >= self.timing.looks_needed:
            self._suspect = True
        marks = event.result.marks
        if marks is not None:
            if self._marks is not None and marks != self._marks:
                self.life_at = now
            self._marks = marks
        self._stopped = event.stopped
        alive = self.life_at > now - self.timing.look_ready_s
        self._looks_without_life = 0 if alive else self._looks_without_life + 1

    # --- canaries -------------------------------------------------------------------------------------------------

    def next_canary_at(self) -> float:
        """When the next canary is due, if the engine is idle then."""
        if self.canary_misses or self._suspect:
            return self._next_canary_at
        return max(self._next_canary_at, self.life_at + self.timing.canary_idle_s)

    def canary_due(self, now: float) -> bool:
        """Whether to ask for a token now: never of a busy engine, whose queue it would only stand in."""
        return self.active == 0 and not self.canary_out and now >= self.next_canary_at()

    def canary_sent(self, now: float) -> None:
        """A canary is under way."""
        self.canary_out, self._canary_from, self._suspect = True, now, False
        self._next_canary_at = now + self.timing.canary_again_s

    def canary_back(self, result: CanaryResult, now: float) -> None:
        """Take in a canary's end. A silent one counts only if the engine was idle throughout."""
        self.canary_out = False
        if result is not CanaryResult.SILENT:
            self.canary_misses, self.life_at = 0, now
        elif self.active == 0 and self.life_at <= self._canary_from:
            self.canary_misses += 1
            self._next_canary_at = now + self.timing.canary_again_s

    # --- the verdict ----------------------------------------------------------------------------------------------

    def stall(self, now: float) -> str | None:
        """Why the engine counts as stalled, or `None`."""
        if self.active == 0:
            if self.canary_misses >= self.timing.canary_misses:
                return f"{self.canary_misses} times in a row it gave no token though it was idle"
            if self.canary_misses and self._stopped:
                return f"it gave no token though it was idle, and {self._stopped} of its processes are stopped"
            return None
        if self._looks_without_life < self.timing.looks_needed:
            return None
        silent_s = now - max(self.life_at, self._busy_from)
        what = f"no progress for {silent_s:.0f} s with {self.active} running"
        if silent_s >= self.timing.silent_limit_s:
            return what
        if self._stopped and silent_s >= self.timing.stopped_limit_s:
            return f"{what}, and {self._stopped} of its processes are stopped"
        return None

    def woken(self) -> None:
        """It stalled and showed life again."""
        self.canary_misses, self._looks_without_life = 0, 0
