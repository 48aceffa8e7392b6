"""What the gateway's own traffic says of one target: breaker, misconfiguration, a time to be left alone. Pure."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from brain_coord.classes.breaker import Breaker, BreakerRules, Ticket

BUSY_DEFAULT_S: Final = 1.0
BUSY_MAX_S: Final = 30.0
"""Longest that a target which said `busy` is asked last; a target may name hours."""

MISCONFIGURED_S: Final = 60.0
"""How long a confirmed misconfiguration keeps a target out before one request may see whether it was mended."""

LACKS_S: Final = 600.0
LACKS_KEPT: Final = 64

Asked = tuple[str, str]
"""A route and a model, as the target was asked for them."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A target that a decision left out or put last for what it did lately."""

    target: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """As answers show it."""
        return {"target": self.target, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """The target refused us, not the client: our key or our address is wrong.

    Attributes:
        status: what it answered.
        at: when, monotonic seconds.
        confirmed: a request of our own, in which no client had a word, was refused as well.
    """

    status: int
    at: float
    confirmed: bool = False


@dataclass(slots=True)
class TargetHealth:
    """One target. `changed(delay_s)` is called when waiting requests may find more to do, that much later.

    Attributes:
        breaker: which is asked for a ticket when a try begins.
        blemished: whether there may be anything that a success would wipe out; for most successes there is not.
    """

    name: str
    breaker: Breaker = field(default_factory=Breaker)
    misconfigured: Misconfigured | None = None
    lacks: dict[Asked, float] = field(default_factory=dict)
    busy_until: float = 0.0
    blemished: bool = True
    changed: Callable[[float], None] = lambda _: None
    troubled: Callable[["TargetHealth"], None] = lambda _: None

    def succeeded(self, ticket: Ticket, asked: Asked | None = None) -> None:
        """It began to answer, or answered: whatever was wrong is over."""
        self.misconfigured, self.busy_until = None, 0.0
        if asked in self.lacks:
            del self.lacks[asked]
        closed = self.breaker.succeeded(ticket)
        self.blemished = bool(self.lacks) or not self.breaker.pristine
        if closed:
            self.changed(0.0)

    def _stained(self) -> None:
        self.blemished = True
        self.troubled(self)

    def failed(self, ticket: Ticket, now: float, cause: str, *, spread: float, incident: str | None = None) -> None:
        """It failed by its own fault."""
        if self.breaker.failed(ticket, now, cause, spread=spread, incident=incident):
            assert self.breaker.reopens_at is not None
            self.changed(self.breaker.reopens_at - now)
        self._stained()

    def dropped(self, ticket: Ticket) -> None:
        """The try told nothing."""
        self.breaker.dropped(ticket)
        if ticket.probe:
            self.changed(0.0)

    def busy(self, now: float, retry_after_s: float | None) -> None:
        """It asked to be left alone for a while: it is asked last until then."""
        self.busy_until = now + min(BUSY_MAX_S, BUSY_DEFAULT_S if retry_after_s is None else retry_after_s)
        self._stained()

    def refused_us(self, now: float, status: int, asked: Asked | None = None) -> None:
        """It answered 401, 403 or 404.

        Args:
            now: seconds of the monotonic clock.
            status: what it answered. A 404 is about one model or route, the others about the whole target.
            asked: for what; `None` for a request of our own, in which no client had a word. A client can provoke a 403
                (moderation), so what its request got only puts the target last; both together take it out.
        """
        known = self.misconfigured
        if status == 404:
            if asked is None:
                return
            self.lacks.pop(asked, None)
            self.lacks[asked] = now
            if len(self.lacks) > LACKS_KEPT:
                del self.lacks[next(iter(self.lacks))]
        elif asked is not None:
            self.misconfigured = Misconfigured(status, now, known is not None and known.confirmed)
        elif known is not None:
            self.misconfigured = Misconfigured(known.status, now, confirmed=True)
        self._stained()

    def out(self, now: float) -> str | None:
        """Why the target gets nothing now, `None` when it may get a request."""
        if not self.breaker.allows(now):
            return self._pause(now)
        wrong = self.misconfigured
        if wrong is not None and wrong.confirmed and now - wrong.at < MISCONFIGURED_S:
            return f"misconfigured: answers {wrong.status}, also to the coordinator's own request"
        return None

    def _pause(self, now: float) -> str:
        faults = f"paused after {self.breaker.faults} fault{'s' if self.breaker.faults != 1 else ''}"
        left_s = (self.breaker.reopens_at or now) - now
        then = f"next try in {math.ceil(left_s)} s" if left_s > 0 else "one request is trying it"
        return f"{faults} ({self.breaker.cause}), {then}"

    def last(self, now: float, asked: Asked | None = None) -> str | None:
        """Why the target is asked after all others, `None` when it is not."""
        if self.misconfigured is not None:
            return f"misconfigured: answered {self.misconfigured.status}"
        if asked is not None and now - self.lacks.get(asked, -LACKS_S) < LACKS_S:
            return f"misconfigured: answered 404 for {asked[1]} on {asked[0]}"
        if now < self.busy_until:
            return f"said it is busy for another {math.ceil(self.busy_until - now)} s"
        return None

    def remark(self, now: float, asked: Asked | None = None) -> str | None:
        """Why it is out or last."""
        return self.out(now) or self.last(now, asked)

    def out_until(self, now: float) -> float | None:
        """When a target that is out may be asked again, `None` when it is not out."""
        if not self.breaker.allows(now):
            return max(self.breaker.reopens_at or now, now)
        wrong = self.misconfigured
        return wrong.at + MISCONFIGURED_S if wrong is not None and self.out(now) is not None else None

    def clean(self, now: float) -> bool:
        """Whether there is nothing to remember."""
        lacking = any(now - at < LACKS_S for at in self.lacks.values())
        return self.breaker.pristine and self.misconfigured is None and now >= self.busy_until and not lacking


@dataclass(slots=True)
class HealthBook:
    """The health of every target of a class. Only those in trouble cost a decision anything.

    Attributes:
        troubled: those that may not be clean, by name; empty for most decisions.
    """

    rules: BreakerRules = field(default_factory=BreakerRules)
    on_change: list[Callable[[float], None]] = field(default_factory=list)
    _known: dict[str, TargetHealth] = field(default_factory=dict)
    troubled: dict[str, TargetHealth] = field(default_factory=dict)

    def of(self, name: str) -> TargetHealth:
        """The health of a target, a clean one at first."""
        health = self._known.get(name)
        if health is None:
            health = TargetHealth(name, Breaker(self.rules), changed=self._changed, troubled=self._note)
            self._known[name] = health
        return health

    def forget(self, name: str) -> None:
        """The target does not exist any more."""
        self._known.pop(name, None)
        self.troubled.pop(name, None)

    def set_rules(self, rules: BreakerRules) -> None:
        """From now on; a pause that runs is not shortened."""
        self.rules = rules
        for health in self._known.values():
            health.breaker.rules = rules

    def in_trouble(self, now: float) -> Iterator[TargetHealth]:
        """The targets that are not clean, by name."""
        for name in [name for name, health in self.troubled.items() if health.clean(now)]:
            del self.troubled[name]
        return iter(sorted(self.troubled.values(), key=lambda health: health.name))

    def _note(self, health: TargetHealth) -> None:
        self.troubled[health.name] = health

    def _changed(self, delay_s: float) -> None:
        for hook in self.on_change:
            hook(delay_s)
