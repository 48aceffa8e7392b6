"""How many slot connections to hold, decided without I/O from counts and time."""

from dataclasses import dataclass, field
from typing import Final

IDLE_S: Final = 60.0
"""How long a slot connection above the wanted number stays open without a job, in seconds."""


@dataclass(slots=True)
class SlotPool:
    """The counts of one session's slot connections.

    The wanted number is the running jobs and `spare` idle ones ahead of them, never above `slots`.
    """

    slots: int
    spare: int
    opening: int = 0
    asked: int = 0
    """Connections that `open_slots` asked for on top of the wanted number; they count as surplus once they idle."""
    active: set[int] = field(default_factory=set)
    idle_since: dict[int, float] = field(default_factory=dict)
    """Idle connections in the order in which they became idle, with the time (monotonic seconds)."""

    @property
    def wanted(self) -> int:
        """Connections to hold for the jobs of now."""
        return min(self.slots, len(self.active) + self.spare)

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self.active) + len(self.idle_since)

    def ask(self, n: int) -> None:
        """The coordinator wants `n` more than are open or opening."""
        self.asked = min(self.slots, self.open + self.opening + n)

    def to_open(self) -> int:
        """How many connections to start now."""
        here = self.open + self.opening
        if here >= self.asked:
            self.asked = 0
        return max(0, max(self.wanted, self.asked) - here)

    def opened(self, slot: int, now: float) -> None:
        """A connection is open and idle; the caller has taken it off `opening`."""
        self.idle_since[slot] = now

    def took_job(self, slot: int) -> None:
        """A job arrived on an idle connection."""
        self.idle_since.pop(slot, None)
        self.active.add(slot)

    def idle(self, slot: int, now: float) -> None:
        """A job is over and its connection idle again."""
        self.active.discard(slot)
        self.idle_since[slot] = now

    def closed(self, slot: int) -> None:
        """A connection is gone."""
        self.active.discard(slot)
        self.idle_since.pop(slot, None)

    def to_close(self, now: float) -> list[int]:
        """Idle connections to close now: above the limit at once, above the wanted number after a while."""
        surplus = self.open - max(self.wanted, self.asked)
        over = self.open - self.slots
        stale = []
        for index, (slot, since) in enumerate(self.idle_since.items()):
            if index < over or (index < surplus and now - since >= IDLE_S):
                stale.append(slot)
        return stale

    def next_close_at(self) -> float | None:
        """When `to_close` may name the next one, in monotonic seconds; `None` when nothing is surplus."""
        if not self.idle_since or self.open <= max(self.wanted, self.asked):
            return None
        return next(iter(self.idle_since.values())) + IDLE_S
