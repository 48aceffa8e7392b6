"""Whether the database is away, why, when to try it again, and what that means for receipts. No I/O, no clock."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from brain_coord.store.errors import StoreUnavailable
from brain_coord.store.records import StoreHealth


class Outage:
    """The current outage of the database, if there is one."""

    def __init__(self, retry_s: float, retry_max_s: float, tell: Callable[[StoreHealth], None]) -> None:
        """Args: the first pause before another try and the longest one; `tell` hears of each change of the state."""
        self.cause: StoreUnavailable | None = None
        """Why the database is away; `None` while it is not."""
        self.health = StoreHealth("ok")
        """Replaced as a whole; may be read from any thread."""
        self._retry_s = retry_s
        self._retry_max_s = retry_max_s
        self._pause_s = retry_s
        self._retry_at_s = 0.0
        self._tell = tell

    def begins(self, error: Exception, now_s: float) -> None:
        """A write has failed. Does nothing in an outage: requests that keep coming must not put off the next try."""
        if self.cause is None:
            self.goes_on(error, now_s)

    def goes_on(self, error: Exception, now_s: float) -> None:
        """Another try has failed: the next one comes after a longer pause."""
        if not isinstance(error, StoreUnavailable):
            error = StoreUnavailable("database_down", f"the store failed: {error}", "See the coordinator's log")
        self.cause = error
        self._retry_at_s = now_s + self._pause_s
        self._pause_s = min(self._retry_max_s, self._pause_s * 2)

    def ends(self) -> None:
        """The database answers; all is well once the spool has been written to it."""
        self.cause = None

    def all_is_well(self) -> None:
        """The database is in use and the spool is empty."""
        self._pause_s = self._retry_s
        self._say(StoreHealth("ok"))

    def receipts_are(
        self, state: Literal["spooling", "refusing"], error: Exception, spooled: int, wall_s: float
    ) -> None:
        """What became of receipts that could not go into the database."""
        since_s = wall_s if self.health.since_s is None else self.health.since_s
        reason = str(self.cause or error)
        if self.cause is None and state == "spooling":
            reason = self.health.reason or reason  # it answers again: why there is a spool to write stays the reason
        self._say(replace(self.health, state=state, reason=reason, since_s=since_s, spooled=spooled))

    def wait_s(self, now_s: float) -> float:
        """Time until the database should be tried again."""
        return max(0.0, self._retry_at_s - now_s)

    def _say(self, health: StoreHealth) -> None:
        changed, self.health = health.state != self.health.state, health
        if changed:
            self._tell(health)
