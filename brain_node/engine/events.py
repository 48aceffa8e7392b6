"""What happens to an engine, and what its state machine wants done. `run` numbers the process an event is about."""

from dataclasses import dataclass
from pathlib import Path

from brain_node.engine.causes import Cause
from brain_node.engine.probe import CanaryResult, ProbeResult
from brain_node.engine.spec import EngineSpec

# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetched:
    """The weights are on the disk."""

    path: Path


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """The weights could not be fetched."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """No process could be made."""

    run: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Looked:
    """A probe is back."""

    run: int
    result: ProbeResult
    owns_listener: bool | None
    """Whether the engine itself listens on its port; `None` when that cannot be told."""
    stopped: int
    """How many of its processes are stopped (by a signal or a debugger) and so cannot do anything."""


@dataclass(frozen=True, slots=True)
class CanaryBack:
    """A canary is back."""

    run: int
    result: CanaryResult


@dataclass(frozen=True, slots=True)
class Exited:
    """The root has gone."""

    run: int
    code: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The whole group has gone and was cleaned up after."""

    run: int
    cause: Cause
    """Read from its log and exit code; what the machine itself ended has the machine's cause instead."""
    held: str | None
    """What still stands in the way of a new start, such as memory that did not come back."""


@dataclass(frozen=True, slots=True)
class Released:
    """What stood in the way was looked at again."""

    held: str | None


RunEvent = LaunchFailed | Looked | CanaryBack | Exited | Ended
Event = Fetched | FetchFailed | Released | RunEvent

# --- actions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch the weights."""


@dataclass(frozen=True, slots=True)
class CancelFetch:
    """Stop fetching."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a process."""

    run: int
    spec: EngineSpec


@dataclass(frozen=True, slots=True)
class Look:
    """Probe it and report `Looked`."""

    run: int
    starting: bool


@dataclass(frozen=True, slots=True)
class Canary:
    """Ask it for one token and report `CanaryBack`."""

    run: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class EndGroup:
    """End the group and report `Ended`."""

    run: int
    term_grace_s: float


@dataclass(frozen=True, slots=True)
class CheckRelease:
    """Look again whether what stood in the way is gone, and report `Released`."""


Action = Fetch | CancelFetch | Launch | Look | Canary | EndGroup | CheckRelease
