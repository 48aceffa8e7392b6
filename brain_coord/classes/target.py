"""What the gateway asks of anything that can run a request: a target, and one exchange with it."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices
from brain_coord.measure.speed import StreamSample
from brain_coord.routing.vocabulary import ResourceClass


class JobSpec(NamedTuple):
    """One attempt's work.

    Attributes:
        headers: of the client's, which an upstream of the same form wants to see.
        query: of the client's address, likewise.
    """

    job_id: str
    model: str
    path: str
    body: bytes
    deadline_s: float
    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""


class ReplyHead(NamedTuple):
    """Status and headers of a target's answer."""

    status: int
    content_type: str
    retry_after: str | None = None


class TargetFault(Exception):  # noqa: N818 — the one error a target raises; `cause` tells which
    """The target could not begin, or broke off.

    Attributes:
        cause: a stable word for the receipt, e.g. `node_lost`, `busy`, `connection_refused`, `timeout`.
        ran: whether the engine may have begun the work; if so the job must be cancelled before another target gets it.
        blame: whether the fault counts against the target.
    """

    def __init__(self, cause: str, message: str, *, ran: bool, blame: bool = True) -> None:
        super().__init__(message)
        self.cause = cause
        self.ran = ran
        self.blame = blame


Waiting = Coroutine[Any, Any, None] | None
Take = Callable[[bytes], Waiting]
"""Takes the next bytes of an answer at once; what it returns, if anything, is to be awaited before the next ones."""


class Exchange(Protocol):
    """One accepted job on a target. `close` must be called exactly once, whatever happened."""

    async def head(self) -> ReplyHead:
        """The status; raises `TargetFault`."""

    async def pass_on(self, take: Take) -> None:
        """Hand every piece of the answer to `take` as soon as it is there, up to the clean end; raises `TargetFault`."""

    async def close(self) -> None:
        """Free the target; work that is still going on there is cancelled. Never raises."""


async def hand_on(read: Callable[[], Awaitable[bytes | None]], take: Take) -> None:
    """`Exchange.pass_on` where the pieces have to be asked for: `read` gives the next one, `None` at the clean end."""
    while (piece := await read()) is not None:
        if (waiting := take(piece)) is not None:
            await waiting


@runtime_checkable
class Detailed(Protocol):
    """A target with more to say on the receipt than a name."""

    def details(self) -> Mapping[str, Any]:
        """Further members of the receipt's body."""


class Target(Protocol):
    """Something that can run a request now."""

    @property
    def resource_class(self) -> ResourceClass:
        """The class it belongs to."""

    @property
    def name(self) -> str:
        """A node id, or the operator's name for an upstream."""

    @property
    def node_id(self) -> str | None:
        """The node id if it is a Brain Node."""

    @property
    def model(self) -> str:
        """The model it would answer with."""

    @property
    def prices(self) -> Prices:
        """What its work costs, as far as its operator said."""

    @property
    def health(self) -> TargetHealth:
        """Its breaker, and what else the gateway's traffic said of it; shared by all requests."""

    async def start(self, job: JobSpec) -> Exchange:
        """Give it the job; returns once it was accepted. Raises `TargetFault`. Bound it with a timeout."""

    def outcome(
        self,
        result: str,
        *,
        first_output_ms: float | None,
        total_ms: float | None,
        stream: StreamSample | None = None,
    ) -> None:
        """How the exchange counts, as the coordinator saw it: `completed`, `failed` or `timed_out`.

        Args:
            result: one of the three words.
            first_output_ms: dispatch to first output of a completed stream.
            total_ms: arrival of the request to the end of an answer that was generated.
            stream: a completed answer as the coordinator's clock saw it, for targets that rank by measured speed.
        """
