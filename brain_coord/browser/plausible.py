"""Whether an answer can have come so soon: speed on the coordinator's clock against what hardware can do. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpeedRules:
    """Bounds of what is believed.

    Attributes:
        most_ops_s: no tab computes faster, in u32 operations per second (a multiplication and an addition are two).
        most_times: how much faster than in its join challenge a tab may be. The challenge is heavier for the bytes it
            sends back than customers' work, so an honest tab is rather slower than in it.
    """

    most_ops_s: float = 5e13
    most_times: float = 16.0


def too_fast(operations: int, elapsed_s: float, known_ops_s: float | None, rules: SpeedRules) -> str | None:
    """Why an answer came sooner than it can have been computed, or `None`.

    Args:
        operations: that the work takes.
        elapsed_s: from dispatch to the last byte of the answer, on our clock.
        known_ops_s: of the tab's join challenge, `None` before it.
        rules: the bounds.
    """
    ops_s = operations / elapsed_s if elapsed_s > 0 else float("inf")
    if ops_s > rules.most_ops_s:
        return f"{ops_s:.2g} operations/s is more than any hardware does"
    if known_ops_s is not None and ops_s > known_ops_s * rules.most_times:
        return f"{ops_s:.2g} operations/s is {ops_s / known_ops_s:.0f} times the speed of its join challenge"
    return None
