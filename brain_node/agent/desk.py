"""The one place that gives engines to jobs and counts them, and knows whether the node takes jobs at all."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Literal

from brain_node.agent.source import EngineSource
from brain_node.contract.limits import MAX_SLOTS
from brain_node.contract.messages import Job
from brain_node.relay.lease import Lease, Outcome


class Desk:
    """Admits jobs.

    Args:
        source: what serves the models.
        slots: most jobs at a time for the whole node; `None` leaves it to the engines.
    """

    def __init__(self, source: EngineSource, slots: int | None) -> None:
        self._source = source
        self._most = MAX_SLOTS if slots is None else slots
        self._idle = asyncio.Event()
        self.active = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.refusals: Counter[str] = Counter()
        self.closed_by: set[str] = set()
        """Who asked for no new jobs: `operator`, `coordinator`, `stopping`. Each takes back only its own wish."""

    @property
    def draining(self) -> bool:
        """Whether new jobs are refused."""
        return bool(self.closed_by)

    @property
    def slots(self) -> int:
        """Jobs this node takes at a time: what its ready engines bear, within the operator's limit."""
        borne = sum(offer.slots for offer in self._source.offers())
        return min(borne, self._most)

    def claim(self, job: Job) -> Lease | Literal["no_engine", "draining", "busy"]:
        """An engine for a job, or why there is none."""
        lease: Lease | Literal["no_engine", "draining", "busy"]
        if self.closed_by:
            lease = "draining"
        elif self.active >= self._most:
            lease = "busy"
        else:
            lease = self._source.claim(job)
        if isinstance(lease, str):
            self.refusals[lease] += 1
            return lease
        self.active += 1
        return _Counted(lease, self._over)

    async def idle(self) -> None:
        """Wait until no job runs."""
        while self.active:
            self._idle.clear()
            await self._idle.wait()

    def _over(self, outcome: Outcome) -> None:
        self.active -= 1
        self.outcomes[outcome] += 1
        if not self.active:
            self._idle.set()


class _Counted:
    """A lease whose end the desk hears of; progress goes straight to the engine's owner."""

    __slots__ = ("_lease", "_over", "endpoint", "progress")

    def __init__(self, lease: Lease, over: Callable[[Outcome], None]) -> None:
        self._lease = lease
        self._over = over
        self.endpoint = lease.endpoint
        self.progress = lease.progress

    def finished(self, outcome: Outcome) -> None:
        self._lease.finished(outcome)
        self._over(outcome)
