"""The five states of a node, why it is in one, and the way back from each. Pure.

| state | why | way back |
|---|---|---|
| OFFLINE | never joined, its link closed, silent for three heartbeats, banned | it joins again (after the ban was lifted) |
| DRAINING | the operator of the coordinator drains it | `brain-coord nodes undrain` |
| DRAINING | the node said so (`brain-node drain`, or it stops) | it says otherwise, or joins again |
| DEGRADED | faults in a row, failed canaries, lost comparisons, failing benchmarks | canaries after 5 minutes, growing to an hour |
| BUSY | a job runs | its jobs end; with a free slot it takes more meanwhile |
| ONLINE | none of these | |

The first that applies from the top is the state: re-joining ends OFFLINE and nothing else.
"""

from dataclasses import dataclass
from typing import Literal

State = Literal["ONLINE", "BUSY", "DEGRADED", "DRAINING", "OFFLINE"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a node's state follows from."""

    connected: bool = False
    banned: str | None = None
    closing: bool = False
    operator_drains: bool = False
    node_drains: bool = False
    degraded: str | None = None
    active: int = 0
    left_because: str | None = None
    next_probe_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class StateView:
    """A state with its reason and what ends it, in words for people."""

    state: State
    reason: str
    way_back: str


def state_of(*, connected: bool, drains: bool, degraded: bool, active: int) -> State:
    """The state alone; asked for every node and request."""
    if not connected:
        return "OFFLINE"
    if drains:
        return "DRAINING"
    if degraded:
        return "DEGRADED"
    return "BUSY" if active else "ONLINE"


def explain_state(facts: Facts) -> StateView:
    """The state with its reason and the way back from it."""
    state = state_of(
        connected=facts.connected,
        drains=facts.closing or facts.operator_drains or facts.node_drains,
        degraded=facts.degraded is not None,
        active=facts.active,
    )
    if state == "OFFLINE":
        if facts.banned is not None:
            return StateView(state, f"banned: {facts.banned}", "lift the ban with `brain-coord nodes unban`")
        return StateView(
            state, facts.left_because or "it has not joined since the coordinator started", "it joins again"
        )
    if state == "DRAINING":
        if facts.operator_drains:
            return StateView(state, "drained by the operator", "`brain-coord nodes undrain`")
        if facts.node_drains:
            return StateView(state, "the node takes no new jobs", "`brain-node resume` on the node, or it joins again")
        return StateView(state, "its session is being closed", "it joins again")
    if state == "DEGRADED":
        wait = facts.next_probe_in_s
        when = "is under way" if wait is None else f"comes in {max(0.0, wait):.0f} s"
        return StateView(state, facts.degraded or "", f"the next canary {when}")
    if state == "BUSY":
        return StateView(state, f"runs {facts.active} job(s)", "its jobs end; with a free slot it takes more meanwhile")
    return StateView(state, "ready", "-")
