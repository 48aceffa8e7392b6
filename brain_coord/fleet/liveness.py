"""When a silent node counts as gone: pure, on the coordinator's clock, with its own stalls given back."""

from brain_node.contract.limits import MISSED_HEARTBEATS


def is_silent(last_heard: float, now: float, heartbeat_s: float, stalled_s: float) -> bool:
    """Whether a node was not heard for three heartbeats.

    Args:
        last_heard: when the last frame of its link came, in seconds of the monotonic clock.
        now: the same clock.
        heartbeat_s: the period told in `welcome`.
        stalled_s: how long the coordinator's own loop stood still since `last_heard`; nodes get that time back.
    """
    return now - last_heard - stalled_s > MISSED_HEARTBEATS * heartbeat_s
