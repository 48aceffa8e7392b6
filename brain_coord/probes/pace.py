"""How often nodes are asked something on our own account. Pure but for the dice that are handed in."""

from dataclasses import dataclass
from random import Random
from typing import Final

from brain_coord.fleet.node import Node

NEW_OUTCOMES: Final = 20
"""A node with fewer outcomes in its window is new."""

NEW_FACTOR: Final = 3
"""New nodes are asked so many times as often."""

COMPARED_SHARE: Final = 2 / 3
"""Share of canaries that are comparisons with a peer, where there is one; all of them while the latest ones were lost."""

JITTER: Final = 0.25
"""Each pause is up to this share shorter or longer, so that no clock gives a canary away."""

CLOSER_S: Final = 120.0
CLOSER_JOBS: Final = 4
"""Pauses while there is reason to look closer."""

DOUBT_S: Final = (1.0, 20.0)
"""When a node is asked that answered with nothing several times in a row."""


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The operator's settings; 0 turns a kind off."""

    canary_s: float = 3600.0
    """Between two canaries of an idle node."""
    canary_jobs: int = 25
    """Customers' jobs after which one is due as well."""
    shadow_share: float = 0.05
    """Share of PUBLIC temperature-0 jobs that a second node is asked too."""
    closer_share: float = 0.25
    """The same for nodes that are new or looked at more closely."""

    @property
    def canaries(self) -> bool:
        """Whether canaries are sent at all; a DEGRADED node gets its canaries in any case, or it could never return."""
        return self.canary_s > 0


@dataclass(frozen=True, slots=True)
class Plan:
    """When a node is asked next: at a time (monotonic seconds) or after so many jobs, whichever comes first."""

    at: float
    jobs: int

    def due(self, node: Node, now: float) -> bool:
        """Whether it is time."""
        return now >= self.at or node.load.ended >= self.jobs


def next_plan(node: Node, settings: ProbeSettings, now: float, random: Random) -> Plan:
    """When to ask a node after it was asked now."""
    pause_s, jobs = settings.canary_s, float(settings.canary_jobs)
    if node.health.watched:
        pause_s, jobs = min(pause_s, CLOSER_S), min(jobs, CLOSER_JOBS)
    elif is_new(node):
        pause_s, jobs = pause_s / NEW_FACTOR, jobs / NEW_FACTOR

    def jittered(value: float) -> float:
        return value * random.uniform(1 - JITTER, 1 + JITTER)

    after = node.load.ended + max(1, round(jittered(jobs))) if jobs > 0 else 1 << 62
    return Plan(now + jittered(pause_s), after)


def shadow_share(node: Node, settings: ProbeSettings) -> float:
    """Share of a node's jobs that another is asked too."""
    if settings.shadow_share <= 0:
        return 0.0
    if (is_new(node) and not node.trusted) or node.health.watched:
        return max(settings.shadow_share, settings.closer_share)
    return settings.shadow_share


def is_new(node: Node) -> bool:
    """Whether little is known of a node yet."""
    return node.done < NEW_OUTCOMES
