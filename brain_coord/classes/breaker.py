"""The breaker of one target: pure, fed with what happened and `now`.

Closed, it lets everything through and counts faults in a row. Enough of them open it: the target is passed over for a
while. Then it is half open: one request at a time may try, the first one that succeeds closes it, and one that fails
opens it for longer. The open time is bounded and a try that never reports expires, so no target is shut out for ever.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple


class BreakerState(StrEnum):
    """What a breaker does with the next request."""

    CLOSED = "closed"  # lets it through
    OPEN = "open"  # passes the target over
    HALF_OPEN = "half-open"  # lets one through to see


class Ticket(NamedTuple):
    """One try, handed back with its result. Results of tries that began before the last change of state are stale."""

    epoch: int
    probe: bool


_FIRST: Final = Ticket(epoch=0, probe=False)


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """Bounds of a breaker; times in seconds.

    Attributes:
        faults: how many in a row open it.
        first_open_s: how long the first time; each further time twice as long.
        max_open_s: longest.
        probe_s: after this a probe that reported nothing keeps nobody out any more.
    """

    faults: int = 3
    first_open_s: float = 5.0
    max_open_s: float = 60.0
    probe_s: float = 30.0


@dataclass(slots=True)
class Breaker:
    """Whether a target gets requests.

    Attributes:
        rules: its bounds.
        faults: in a row, each incident counted once.
        cause: of the last fault.
        reopens_at: when an open breaker lets a probe through; `None` while closed.
    """

    rules: BreakerRules = field(default_factory=BreakerRules)
    faults: int = 0
    cause: str | None = None
    reopens_at: float | None = None
    _opened: int = 0
    _ticket: Ticket = _FIRST
    """Of every try while it is closed; a new one at each change of state."""
    _probe_at: float | None = None
    _incident: str | None = None

    @property
    def pristine(self) -> bool:
        """Whether there is nothing to remember."""
        return self.faults == 0 and self._opened == 0 and self.reopens_at is None

    def state(self, now: float) -> BreakerState:
        """What it does with the next request."""
        if self.reopens_at is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.reopens_at else BreakerState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Whether a try could begin now."""
        if self.reopens_at is None:
            return True
        return now >= self.reopens_at and not self._probing(now)

    def _probing(self, now: float) -> bool:
        return self._probe_at is not None and now - self._probe_at < self.rules.probe_s

    def begin(self, now: float) -> Ticket | None:
        """A try begins; `None` when it may not."""
        if self.reopens_at is None:
            return self._ticket
        if not self.allows(now):
            return None
        self._probe_at = now
        return Ticket(self._ticket.epoch, probe=True)

    def _next_epoch(self) -> None:
        self._ticket = Ticket(self._ticket.epoch + 1, probe=False)
        self._probe_at = None

    def succeeded(self, ticket: Ticket) -> bool:
        """The target did its work; whether that closed the breaker."""
        if ticket.epoch != self._ticket.epoch:
            return False
        self.faults, self._incident = 0, None
        if not ticket.probe:
            self._opened = 0  # two successes in a row: the next opening is a first one again
            return False
        self._next_epoch()
        self.reopens_at = None
        return True

    def failed(self, ticket: Ticket, now: float, cause: str, *, spread: float, incident: str | None = None) -> bool:
        """The target failed by its own fault; whether that opened the breaker.

        Args:
            ticket: of the try.
            now: seconds of the monotonic clock.
            cause: a stable word.
            spread: 0 to 1, from a source of randomness: targets that failed together must not be probed together.
            incident: faults of one incident count once, for example all jobs on one lost connection, or one prompt
                that is sent again and again.
        """
        if ticket.epoch != self._ticket.epoch:
            return False
        if incident is not None and incident == self._incident and not ticket.probe:
            return False
        self.faults, self.cause, self._incident = self.faults + 1, cause, incident
        if not ticket.probe and self.faults < self.rules.faults:
            return False
        open_s = min(self.rules.max_open_s, self.rules.first_open_s * 2**self._opened) * (0.75 + 0.5 * spread)
        self._opened = min(self._opened + 1, 30)
        self._next_epoch()
        self.reopens_at = now + open_s
        return True

    def dropped(self, ticket: Ticket) -> None:
        """The try ended without telling anything of the target: the client left, or it was busy."""
        if ticket.probe and ticket.epoch == self._ticket.epoch:
            self._probe_at = None
