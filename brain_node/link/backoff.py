"""When to try the coordinator again: jittered, capped, and patient after a short-lived link.

Every delay is drawn from [window / 4, window], also the first after a loss: a fleet that lost its coordinator together
must not come back together. The window grows with each failure and only shrinks back after a link that stayed up.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The figures of one back-off, in seconds."""

    start_s: float = 0.5
    """The very first attempt of a process is spread over this long: machines also boot together."""
    window_s: float = 4.0
    growth: float = 1.5
    """How much the window grows with each failure."""
    cap_s: float = 60.0
    slow_s: float = 30.0
    """Smallest window after a fault that time alone does not mend soon (certificates, a busy coordinator)."""
    stable_after_s: float = 60.0
    """A link that stayed up this long counts as stable."""
    longest_retry_after_s: float = 3600.0
    """A coordinator's `retry_after_s` is obeyed up to here."""


class Backoff:
    """The delays of one thing that reconnects.

    Args:
        policy: its figures.
        draw: a source of numbers in [0, 1), so that tests choose them.
    """

    def __init__(self, policy: BackoffPolicy, draw: Callable[[], float]) -> None:
        self._policy = policy
        self._draw = draw
        self._window_s = policy.window_s
        self._up_since: float | None = None
        self.failures = 0
        """Attempts and links lost since the last stable link."""

    def first_delay_s(self) -> float:
        """How long to wait before the first attempt of all."""
        return self._draw() * self._policy.start_s

    def up(self, now: float) -> None:
        """The link is up since `now` (monotonic seconds)."""
        self._up_since = now

    def reset(self) -> None:
        """Forget the failures so far: what reconnects has proved its use."""
        self._window_s, self.failures = self._policy.window_s, 0

    def asked_s(self, now: float) -> float:
        """The coordinator asked for a new link at `now`, which is no failure: how long to wait before it, in seconds."""
        self._ended(now)
        return self._policy.window_s * self._part()

    def down(self, now: float, *, retry_after_s: float | None = None, slow: bool = False) -> float:
        """The link or an attempt failed at `now`: how long to wait before the next one, in seconds.

        Args:
            now: monotonic seconds.
            retry_after_s: what the coordinator asked for; never undercut, and spread a little above.
            slow: the fault will not pass soon.
        """
        policy = self._policy
        self._ended(now)
        window_s = max(self._window_s, policy.slow_s) if slow else self._window_s
        delay_s = window_s * self._part()
        self._window_s = min(policy.cap_s, self._window_s * policy.growth)
        self.failures += 1
        if retry_after_s is None:
            return delay_s
        asked_s = min(max(0.0, retry_after_s), policy.longest_retry_after_s)
        return max(asked_s + (0.25 * asked_s + 1.0) * self._draw(), delay_s)

    def _ended(self, now: float) -> None:
        if self._up_since is not None and now - self._up_since >= self._policy.stable_after_s:
            self.reset()
        self._up_since = None

    def _part(self) -> float:
        return 0.25 + 0.75 * self._draw()
