"""How many jobs at once a node bears: as seen on our clock, whatever it claims. Pure.

A claim of 64 slots costs nothing, and would make a node look idle while its engine runs two jobs and lets the others wait.
So a node begins with `START` slots at most, and gets more only while as many jobs as it has slots go on at once. Each
answer that had company tells how much of the lone speed it kept:

    load  = jobs on the node while it ran, on average
    share = credited speed / lone speed (that of the join benchmark, or what five of the recent streams reached)

A slot is worth the name while its job keeps at least `BORNE_SHARE` of the lone speed. Where the middle one of the recent
answers kept less, the node has as many slots as its whole speed bears out at that share, and from then on each further slot
has to be earned by streams whose speed was measured: that one began proves little, as a first event costs nothing, and so
does an answer that came in one piece.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

START: Final = 16
"""Slots that are believed at first."""

BORNE_SHARE: Final = 0.25
"""The part of its lone speed that a job has to keep. Engines that batch well keep more than half at dozens of jobs."""

GOING_ON: Final = 4
"""Times as many slots, when as many jobs as it has have begun to answer: a rush of long streams must not wait for their ends."""

COMPLETED: Final = 2
"""Times as many, when answers at the limit were completed."""

ANSWERS: Final = 3
"""So many answers at the limit raise it."""

RECENT: Final = 8
"""Answers with company that are looked at."""

FULL: Final = 0.75
"""An answer counts as one at the limit when the node was so full while it ran."""

LEAST: Final = 2
"""Never fewer slots than this: with one a node has no company, and could show nothing any more."""

COMPANY: Final = 1.5
"""Mean number of jobs from which on an answer had company."""

REACHED: Final = 5
"""A lone speed counts once so many recent streams reached it."""


@dataclass(slots=True)
class Load:
    """Jobs over time: the mean between two moments costs two additions a job."""

    area: float = 0.0
    """Jobs times seconds so far."""
    jobs: int = 0
    """Those that run now."""
    going_on: int = 0
    """Jobs that have begun to answer and go on."""
    ended: int = 0
    """Jobs of customers that ended since the coordinator started."""
    _at: float = 0.0

    def change(self, jobs: int, now: float) -> None:
        """So many jobs run from now on; `now` in seconds of the monotonic clock."""
        self.area += self.jobs * (now - self._at)  # nothing before the first job
        self.jobs, self._at = jobs, now

    def until(self, now: float) -> float:
        """The area up to now."""
        return self.area + self.jobs * (now - self._at)

    def mean(self, area_then: float, then: float) -> float:
        """Jobs from an earlier moment to their last change, on average; `area_then` is what `until` said at that moment."""
        return (self.area - area_then) / (self._at - then or 1e-9)


@dataclass(slots=True)
class BorneSlots:
    """One node's slots as far as they are borne out."""

    limit: int = START
    collapsed: bool = False
    """It was seen to collapse under more jobs than it bears."""
    _recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Load and share of the answers that tell a share."""
    _full: int = 0
    """Answers at the limit that speak for more."""

    def began(self, going_on: int, claimed: int) -> bool:
        """So many jobs have begun to answer and go on at once; whether the limit rose."""
        if self.collapsed or going_on < self.limit or self.limit >= claimed:
            return False
        self.limit *= GOING_ON
        return True

    def completed(self, load: float, share: float | None, claimed: int, *, exact: bool = True) -> bool:
        """An answer came to its end; whether the limit changed.

        Args:
            load: jobs on the node while it was made, itself included, on average.
            share: of the lone speed that it kept; `None` where that cannot be told.
            claimed: slots that the node offers.
            exact: the share was measured. Otherwise it is at most that, which speaks for more slots only before a collapse.
        """
        if load < COMPANY:
            return False
        allowed = min(self.limit, claimed)
        if share is not None and (exact or share < BORNE_SHARE):
            recent = self._recent
            recent.append((load, share))
            if len(recent) >= ANSWERS and median([kept for _, kept in recent]) < BORNE_SHARE:
                borne = int(median([jobs * kept for jobs, kept in recent]) / BORNE_SHARE)
                before, self.limit, self.collapsed = self.limit, max(LEAST, min(allowed - 1, borne)), True
                recent.clear()
                self._full = 0
                return self.limit != before
        if share is not None and share < BORNE_SHARE:
            self._full = 0
        elif load >= FULL * allowed and (exact or not self.collapsed):
            self._full += 1
        if self._full < ANSWERS or self.limit >= claimed:
            return False
        self.limit = self.limit + 1 if self.collapsed else self.limit * COMPLETED
        self._full = 0
        return True
