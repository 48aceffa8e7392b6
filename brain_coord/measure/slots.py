"""How many jobs at once a node bears: as seen on our clock, whatever it claims. Pure.

A claim of 64 slots costs nothing, and would make a node look idle while its engine runs two jobs and lets the others wait.
So a node begins with `START` slots at most, and gets more only while as many jobs as it has slots go on at once. Each
completed stream that had company tells how much of its lone speed it kept:

    load  = jobs on the node while the stream ran, on average
    share = credited speed / lone speed (that of the join benchmark, or what five of the recent streams reached)

A slot is worth the name while its job keeps at least `BORNE_SHARE` of the lone speed. Where the middle one of the recent
streams kept less, the node has as many slots as its whole speed bears out at that share, and from then on each further slot
has to be earned by completed streams alone: that a stream began proves little, as a first event costs nothing.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

START: Final = 8
"""Slots that are believed at first."""

BORNE_SHARE: Final = 0.25
"""The part of its lone speed that a job has to keep. Engines that batch well keep more than half at dozens of jobs."""

STREAMS: Final = 3
"""So many streams at the limit raise it."""

RECENT: Final = 8
"""Streams with company that are looked at."""

FULL: Final = 0.75
"""A stream counts as one at the limit when the node was so full while it ran."""

LEAST: Final = 2
"""Never fewer slots than this: with one a node has no company, and could show nothing any more."""

COMPANY: Final = 1.5
"""Mean number of jobs from which on a stream had company."""

REACHED: Final = 5
"""A lone speed counts once so many recent streams reached it."""


@dataclass(slots=True)
class Load:
    """Jobs over time: the mean between two moments costs two additions a job."""

    area: float = 0.0
    """Jobs times seconds so far."""
    _level: int = 0
    _at: float = 0.0

    def change(self, level: int, now: float) -> None:
        """So many jobs run from now on; `now` in seconds of the monotonic clock."""
        self.area += self._level * (now - self._at) if self._at else 0.0
        self._level, self._at = level, now

    def until(self, now: float) -> float:
        """The area up to now."""
        return self.area + (self._level * (now - self._at) if self._at else 0.0)


@dataclass(slots=True)
class BorneSlots:
    """One node's slots as far as they are borne out."""

    limit: int = START
    collapsed: bool = False
    """It was seen to collapse under more jobs than it bears."""
    _recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def began(self, going_on: int, claimed: int) -> bool:
        """So many jobs have begun to answer and go on at once; whether the limit rose."""
        if self.collapsed or going_on < self.limit or self.limit >= claimed:
            return False
        self.limit *= 2
        return True

    def completed(self, load: float, share: float, claimed: int) -> bool:
        """A stream came to its end; whether the limit changed.

        Args:
            load: jobs on the node while it ran, itself included, on average.
            share: of the lone speed that it kept.
            claimed: slots that the node offers.
        """
        if load < COMPANY:
            return False
        self._recent.append((load, share))
        if len(self._recent) < STREAMS:
            return False
        allowed = min(self.limit, claimed)
        if median(share for _, share in self._recent) < BORNE_SHARE:
            borne = int(median(load * share for load, share in self._recent) / BORNE_SHARE)
            self.limit, self.collapsed = max(LEAST, min(allowed - 1, borne)), True
        elif self.limit < claimed and self._at_the_limit(allowed) >= STREAMS:
            self.limit = self.limit + 1 if self.collapsed else self.limit * 2
        else:
            return False
        self._recent.clear()
        return True

    def _at_the_limit(self, allowed: int) -> int:
        return sum(load >= FULL * allowed and share >= BORNE_SHARE for load, share in self._recent)


def lone_tok_s(benchmark_tok_s: float | None, streams: Sequence[float]) -> float | None:
    """The speed of a job that has the node to itself, as far as it is known; a benchmark that was slowed down hides nothing."""
    reached = sorted(streams)[-REACHED] if len(streams) >= REACHED else None
    return max((value for value in (benchmark_tok_s, reached) if value is not None), default=None)
