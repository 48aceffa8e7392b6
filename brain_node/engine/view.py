"""What others may see of an engine: one frozen record, free of secrets, for status, heartbeats and panels."""

from dataclasses import dataclass
from typing import Any, Final

from brain_node.engine.causes import Cause
from brain_node.engine.states import State

WAITS: Final = "waits for its turn: engines on one card, or on the CPU, start one after the other"


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far the weights are."""

    done_bytes: int
    total_bytes: int | None
    """`None` until the hub has told."""
    rate_bytes_s: float | None
    eta_s: float | None

    @property
    def fraction(self) -> float | None:
        """From 0 to 1, or `None` while the total is unknown."""
        return min(1.0, self.done_bytes / self.total_bytes) if self.total_bytes else None

    @property
    def sentence(self) -> str:
        """Such as `34% of 15.2 GB, 85 MB/s, 2 min left`."""
        if self.fraction is None or self.total_bytes is None:
            return f"{self.done_bytes / 1e9:.1f} GB"
        text = f"{self.fraction:.0%} of {self.total_bytes / 1e9:.1f} GB"
        if self.rate_bytes_s is not None and self.eta_s is not None:
            left = f"{self.eta_s:.0f} s" if self.eta_s < 90 else f"{self.eta_s / 60:.0f} min"
            text += f", {self.rate_bytes_s / 1e6:.0f} MB/s, {left} left"
        return text


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine at one moment."""

    model_id: str
    replica: int
    state: State
    since: float
    """When the state began, in monotonic seconds."""
    elapsed_s: float
    """Time spent in the state."""
    pid: int | None
    port: int | None
    base_url: str | None
    """Where it listens, without a slash at its end; use it only while ready."""
    context: int | None
    """Most tokens it was really started with; `None` leaves it to the model."""
    starts: int
    """Processes launched so far."""
    start_s: float | None
    """From launch to ready, of the last time."""
    active: int
    """Jobs that run now."""
    cause: Cause | None
    """Why it last ended or cannot run; stays in sight for a while after it serves again."""
    note: str
    """What was decided about that, such as a smaller context."""
    next_retry_s: float | None
    waits: bool
    """Whether it would start now if it were its turn."""
    progress: DownloadProgress | None
    last_line: str
    """The newest line of its log while it starts, else empty."""
    log_path: str

    @property
    def ready(self) -> bool:
        """Whether it takes jobs."""
        return self.state is State.READY

    @property
    def sentence(self) -> str:
        """One line for people."""
        if self.waits:
            return WAITS
        match self.state:
            case State.DOWNLOADING if self.progress:
                return f"downloading, {self.progress.sentence}"
            case State.STARTING:
                return f"starting, {self.elapsed_s:.0f} s"
            case State.READY:
                return f"ready, {self.active} running" if self.active else "ready"
            case State.BACKING_OFF if self.cause and self.next_retry_s is not None:
                return f"{self.cause.message}; next start in {self.next_retry_s:.0f} s"
            case State.FAILED if self.cause:
                return f"{self.cause.message}; {self.note or self.cause.advice}, then restart the agent"
            case State.STALLED | State.BACKING_OFF if self.cause:
                return self.cause.message
        return self.state.value.replace("_", " ")

    def as_json(self) -> dict[str, Any]:
        """What `--json` shows of it."""
        cause, progress = self.cause, self.progress
        return {
            "model": self.model_id,
            "replica": self.replica,
            "state": "waiting" if self.waits else self.state.value,
            "elapsed_s": round(self.elapsed_s, 1),
            "pid": self.pid,
            "port": self.port,
            "context": self.context,
            "starts": self.starts,
            "start_s": None if self.start_s is None else round(self.start_s, 1),
            "active": self.active,
            "sentence": self.sentence,
            "cause": None
            if cause is None
            else {
                "kind": cause.kind.value,
                "message": cause.message,
                "advice": cause.advice,
                "evidence": list(cause.evidence),
                "figures": cause.figures,
            },
            "note": self.note,
            "next_retry_s": None if self.next_retry_s is None else round(self.next_retry_s, 1),
            "download": None
            if progress is None
            else {
                "done_bytes": progress.done_bytes,
                "total_bytes": progress.total_bytes,
                "rate_bytes_s": progress.rate_bytes_s,
                "eta_s": progress.eta_s,
            },
            "log": self.log_path,
        }
