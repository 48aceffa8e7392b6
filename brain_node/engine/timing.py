"""Every duration of supervision, in one place, so that tests can run on a faster clock."""

from dataclasses import dataclass, fields, replace

from brain_node.link.backoff import BackoffPolicy


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds; counts are whole numbers and shares are fractions."""

    start_limit_s: float = 1800.0
    """From launch to ready: a 70B model on slow disks needs many minutes, and a live child inside it is left alone."""
    look_starting_s: float = 1.0
    look_ready_s: float = 5.0
    look_stalled_s: float = 2.0
    look_timeout_s: float = 10.0
    start_canary_limit_s: float = 300.0
    """The very first token may have to wait for compilation."""
    canary_idle_s: float = 30.0
    """An idle engine is asked for a token this long after its last sign of life."""
    canary_limit_s: float = 15.0
    canary_again_s: float = 2.0
    canary_misses: int = 2
    looks_needed: int = 3
    """So many probes in a row must have seen no progress before a busy engine is called stalled."""
    silent_limit_s: float = 180.0
    """A busy engine (a long prefill, compilation, a flood of requests) shows a sign of life within this."""
    stopped_limit_s: float = 15.0
    """The same for one of whose processes the kernel says that it is stopped."""
    stall_grace_s: float = 5.0
    """A stalled engine that wakes up within this goes on."""
    term_grace_s: float = 5.0
    """From SIGTERM to SIGKILL of the group; only for one that was healthy, the others are killed at once."""
    stable_after_s: float = 600.0
    """Ready this long, it has earned a clean slate."""
    release_again_s: float = 5.0
    """What stood in the way of a start is looked at again after this."""
    port_again_s: float = 0.2
    """A start that only wants another port waits this long."""
    backoff_first_s: float = 2.0
    start_backoff_cap_s: float = 300.0
    crash_backoff_cap_s: float = 15.0
    """An engine that served is wanted back soon, and its own start time keeps a loop slow enough."""

    @property
    def start_backoff(self) -> BackoffPolicy:
        """The back-off after starts that failed; it begins anew once one has worked."""
        return BackoffPolicy(
            start_s=0.0, window_s=self.backoff_first_s, growth=2.0, cap_s=self.start_backoff_cap_s, stable_after_s=0.0
        )

    @property
    def crash_backoff(self) -> BackoffPolicy:
        """The back-off after an engine that had served ended."""
        return BackoffPolicy(
            start_s=0.0,
            window_s=self.backoff_first_s,
            growth=2.0,
            cap_s=self.crash_backoff_cap_s,
            stable_after_s=self.stable_after_s,
        )

    def faster(self, factor: float) -> "Timing":
        """The same on a clock that runs `factor` times as fast, for tests."""
        names = [field.name for field in fields(self) if field.name.endswith("_s")]
        return replace(self, **{name: getattr(self, name) / factor for name in names})
