"""Whom to ask next for one request: ranked targets one by one, and the wait while capacity is all that is missing."""

import random
from collections.abc import Hashable
from time import monotonic
from typing import Final

from brain_coord.classes.target import Target
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.errors import fault
from brain_coord.gateway.journal import Record
from brain_coord.gateway.limits import PlanLimits
from brain_coord.gateway.waiting import QueueFull, WaitingRoom

_NOBODY: Final = frozenset[str]()


class TargetPicker:
    """Gives out each target once; decides anew when none is left and after every wait, and keeps the record up to date."""

    _order: int | None = None

    def __init__(
        self, record: Record, decider: Decider, room: WaitingRoom, *, queue_s: float, limits: PlanLimits
    ) -> None:
        self._record = record
        self._decider = decider
        self._room = room
        self._queue_s = queue_s
        self._limits = limits
        self._given: set[str] = set()

    def best(self) -> Target | None:
        """The best target that was not asked yet and can take the request now, `None` when there is none."""
        record, given = self._record, self._given
        asked = self._asked() if record.result.attempts else _NOBODY
        target = self._decider.target(record.request, record.decision, given | asked, failed=bool(asked))
        if target is not None:
            given.add(target.name)
        return target

    def _asked(self) -> frozenset[str]:
        """Targets that really got the request. To lose a race for a slot is no attempt."""
        return frozenset(attempt.target for attempt in self._record.result.reached)

    def _may_wait(self) -> bool:
        decision, asked = self._record.decision, self._asked()
        if self._given - asked:
            return True
        # None of those that were asked is asked again, so nothing but somebody else's slot is worth waiting for then.
        return bool(self._decider.full(decision) - asked) if asked else decision.worth_waiting

    def _lane(self) -> Hashable:
        """Everything that decides by what capacity this request can be served."""
        request = self._record.request
        return request.model, request.dialect.path, request.wishes, self._asked()

    async def wait(self) -> Target | None:
        """The best one after a wait for capacity; `None` when there is none, or nothing comes of waiting.

        Raises:
            ApiError: 429 when it should wait and the queue is full.
        """
        record = self._record
        if record.result.reached:  # others were asked since the decision: slots have come free, or were taken
            self._decide()
            if (target := self.best()) is not None:
                return target
        if not self._may_wait():
            return None
        left_s = min(self._queue_s - record.queued_ms / 1000, record.decision.wait_s or self._queue_s)
        if left_s <= 0:
            return None
        key = record.caller.key_id or ""
        try:
            places = self._limits.places(self._room.limit)
            waiter = self._room.enter(key, self._lane(), places, self._order, record.request.wishes.node)
        except QueueFull as full:
            whose = "requests of this key" if full.own else "requests"
            again_s = random.randint(1, 3)  # noqa: S311 — so that those refused together do not come back together
            raise fault(
                "queue_full", f"too many {whose} wait for a free slot; try again shortly", retry_after_s=again_s
            ) from None
        self._order = waiter.order
        began = monotonic()
        target = None
        try:
            while await waiter.woken(max(0.0, began + left_s - monotonic())):
                target = self._again()
                if target is not None or not self._may_wait():
                    break
            else:
                target = self._again()  # so that a refusal tells how things are now
        finally:
            self._room.leave(waiter, served=target is not None)
            record.queued_ms += (monotonic() - began) * 1000
        return target

    def _again(self) -> Target | None:
        self._given.clear()
        self._decide()
        return self.best()

    def _decide(self) -> None:
        self._record.decision = self._decider.decide(self._record.request, self._record.caller)
