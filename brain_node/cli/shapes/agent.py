"""What the running agent answers: `status`, `drain`, `resume`, `stop`, `why`."""

from typing import Any, Literal

from pydantic import Field

from brain_node.cli.shapes.base import Problem, Shape
from brain_node.contract.messages import GpuClaim, Offer, Refusal


class NotRunning(Shape):
    """No agent runs on this data folder; the command ends with 69."""

    running: Literal[False]
    data_dir: str


class Draining(Shape):
    """Whether new jobs are refused from now on."""

    draining: bool
    remembered: bool
    """False when it could not be written down: a restart forgets it."""


class Stopping(Shape):
    """The agent stops."""

    stopping: Literal[True]


class Link(Shape):
    """The link to the coordinator."""

    url: str
    state: str
    for_s: float
    """How long it has been in this state."""
    session: str | None
    accepted: list[str]
    """Models that the coordinator routes here."""
    refused: list[Refusal]
    """Models that it does not, and why."""
    fault: Problem | None
    retry_in_s: float | None
    attempts: int
    sessions: int


class EngineKind(Shape):
    """What serves the models."""

    kind: str
    version: str | None
    uses_cards: bool


class Cause(Shape):
    """Why an engine ended or cannot run."""

    kind: str
    message: str
    advice: str
    evidence: list[str]
    """The lines of its log that say so."""
    figures: dict[str, float]


class Download(Shape):
    """How far the weights are."""

    done_bytes: int
    total_bytes: int | None
    rate_bytes_s: float | None
    eta_s: float | None


class LaunchedEngine(Shape):
    """An engine that the agent launched."""

    model: str
    replica: int
    state: str
    elapsed_s: float
    """Time spent in this state."""
    pid: int | None
    port: int | None
    context: int | None
    starts: int
    start_s: float | None
    """From launch to ready, of the last time."""
    active: int
    sentence: str
    cause: Cause | None
    note: str
    next_retry_s: float | None
    download: Download | None
    log: str
    lost: str | None
    """Why it cannot come back by itself, such as a card that fell off the bus."""
    runs_on: str | list[str]
    slots: int
    tokens_s: float | None


class OtherEngine(Shape):
    """A server that the agent did not launch, or the mock."""

    model: str
    state: str
    sentence: str
    elapsed_s: float | None = None
    cause: str | None = None
    progress: float | None = None


class NotPlaced(Shape):
    """A model that was asked for and does not run here."""

    model: str
    state: Literal["not_placed"]
    sentence: str
    next_step: str


class Jobs(Shape):
    """Jobs of this run."""

    active: int
    slots: int
    finished: dict[str, int]
    """By outcome."""
    refused: dict[str, int]
    """By reason."""


class Slots(Shape):
    """Slot connections."""

    open: int
    active: int
    fault: Problem | None


class Setting(Shape):
    """One setting; secrets only as `set`."""

    value: Any
    source: str
    """Flag, environment, file or default."""


class Status(Shape):
    """Everything worth knowing about the running agent."""

    running: Literal[True]
    node_id: str
    version: str
    pid: int
    started_at: float
    """Wall time in seconds since 1970."""
    uptime_s: float
    coordinator: Link
    draining: bool
    draining_for: list[str]
    engine: EngineKind
    engines: list[LaunchedEngine | NotPlaced | OtherEngine]
    offer: Offer
    jobs: Jobs
    slot_connections: Slots
    gpus: list[GpuClaim]
    problems: list[Problem]
    settings: dict[str, Setting]
    log: str


class NoticeCount(Shape):
    """Notices of one code."""

    code: str
    count: int
    message: str
    at: float
    """Of the latest, wall time in seconds since 1970."""


class Why(Shape):
    """What the coordinator said about this node lately."""

    window_s: float
    notices: list[NoticeCount]
    skipped: dict[str, int] | None
    """Requests that passed this node by, by reason; null when the coordinator has not told."""
    link: str
    refused_models: list[Refusal] = Field(description="Models that the coordinator does not route here, and why.")
