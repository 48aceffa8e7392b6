"""What one API key may do: requests a minute and requests at a time, by its plan. Pure but for the counting.

A key's requests refill steadily, so `x-ratelimit-reset-requests` is when all of them are back, as OpenAI means it.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.http import pairs_of
from brain_coord.routing.vocabulary import Plan

KEYS_KEPT: Final = 10_000
"""Above this many keys, those that are idle and have all their requests back are forgotten."""

PRUNED_AT_ONCE: Final = 8

SLACK: Final = 5e-7
"""By so much a sum of seconds may miss a whole request that has come back."""


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What each key of a plan may do.

    Attributes:
        requests_per_min: steady rate, and the most that may come at once.
        concurrent: requests at a time, streams and waiting ones included.
        queue_share: the part of the queue that one key may fill, above 0 up to 1.
    """

    requests_per_min: int
    concurrent: int
    queue_share: float

    def places(self, queue_limit: int) -> int:
        """Requests of one key that may wait at a time; at least one."""
        return max(1, int(queue_limit * self.queue_share))


DEFAULT_PLANS: Final[Mapping[Plan, PlanLimits]] = MappingProxyType(
    {
        Plan.FREE: PlanLimits(requests_per_min=120_000, concurrent=2048, queue_share=0.5),
        Plan.PAID: PlanLimits(requests_per_min=600_000, concurrent=8192, queue_share=1.0),
    }
)
"""Wide: they stop a runaway loop, not a greedy user. A coordinator for strangers sets its own."""


@dataclass(slots=True)
class Meter:
    """One key's requests. `left` refills with time; times in seconds of the monotonic clock."""

    left: float
    at: float
    running: int = 0

    def allows(self, limits: PlanLimits) -> bool:
        """Whether one more request may come now."""
        return self.left >= 1 - SLACK and self.running < limits.concurrent

    def refusal(self, limits: PlanLimits) -> ApiError:
        """Why it may not: 429 with the rate-limit headers."""
        if self.left < 1 - SLACK:
            wait_s = math.ceil((1 - SLACK - self.left) * 60 / limits.requests_per_min)
            what = f"{limits.requests_per_min} requests a minute are used up"
        else:
            wait_s, what = 1, f"{limits.concurrent} requests at a time are running"
        return fault(
            "rate_limited",
            f"this key's {what}; try again in {wait_s} s",
            retry_after_s=max(1, wait_s),
            headers=pairs_of(self.lines(limits)),
        )

    def lines(self, limits: PlanLimits) -> bytes:
        """The headers that OpenAI sends, as they are written."""
        most, left = limits.requests_per_min, self.left + SLACK
        return (
            f"x-ratelimit-limit-requests: {most}\r\n"
            f"x-ratelimit-remaining-requests: {int(left)}\r\n"
            f"x-ratelimit-reset-requests: {duration((most - left) * 60 / most)}\r\n"
        ).encode()


def duration(seconds: float) -> str:
    """`120ms`, `1.5s`, `6m0s`."""
    if seconds <= 0.999:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds <= 59.9:
        return f"{math.ceil(seconds * 10) / 10:g}s"
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s"


@dataclass(slots=True)
class KeyMeters:
    """The meters of the keys that were used lately."""

    plans: Mapping[Plan, PlanLimits] = field(default_factory=lambda: DEFAULT_PLANS)
    _meters: OrderedDict[str, Meter] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._meters)

    @property
    def running(self) -> int:
        """Requests that were admitted and are not over."""
        return sum(meter.running for meter in self._meters.values())

    def admit(self, caller: Caller, now: float) -> "Permit":
        """Count one request. Whoever is admitted must release.

        Raises:
            ApiError: 429 with the rate-limit headers; a refused request counts for nothing.
        """
        limits, key = self.plans[caller.plan], caller.key_id or ""
        most = limits.requests_per_min
        meter = self._meters.get(key)
        if meter is None:
            self._prune(now)
            meter = self._meters[key] = Meter(float(most), now)
        self._meters.move_to_end(key)
        left = meter.left + (now - meter.at) * most / 60
        meter.left, meter.at = (min(most, left)), now
        if not meter.allows(limits):
            raise meter.refusal(limits)
        meter.left -= 1
        meter.running += 1
        return Permit(meter, limits, meter.lines(limits))

    def running_by_key(self) -> dict[str, int]:
        """The requests under way of each key that has any."""
        return {key: meter.running for key, meter in self._meters.items() if meter.running}

    def _prune(self, now: float) -> None:
        """Bounded work for each new key: look at the few that were used longest ago."""
        if len(self._meters) < KEYS_KEPT:
            return
        most = max(limits.requests_per_min for limits in self.plans.values())
        for key in list(self._meters)[:PRUNED_AT_ONCE]:
            meter = self._meters[key]
            if not meter.running and (now - meter.at >= 60 or meter.left >= most):
                del self._meters[key]


@dataclass(slots=True)
class Permit:
    """One admitted request, by the limits that its key has."""

    meter: Meter
    limits: PlanLimits
    lines: bytes
    """Headers that tell what is left to the key."""
    on_release: Callable[[], None] | None = None
    _held: bool = True

    def release(self) -> None:
        """The request is over, however it ended."""
        if self._held:
            self._held = False
            self.meter.running -= 1
            if self.on_release is not None:
                self.on_release()


class SharedMeters(Protocol):
    """The same limits over all coordinators of a cluster."""

    async def admit(self, caller: Caller, permit: Permit) -> None:
        """Count a request that was admitted here, and put what is left of its key into the permit's lines.

        Raises:
            ApiError: 429, as `KeyMeters.admit` raises it.
        """
