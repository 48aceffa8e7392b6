"""What the gateway tells whoever follows its requests as traces: a span for each, and one below it for each attempt."""

from collections.abc import Mapping
from typing import Any, Protocol

from brain_coord.observe.finished import FinishedRequest

TraceHeaders = tuple[tuple[str, str], ...]


class RequestTrace(Protocol):
    """One request. `end` is called exactly once."""

    def attempt(self, resource_class: str, target: str) -> TraceHeaders:
        """A try begins: the headers by which its target can go on with the trace."""

    def attempted(self, attempt: Mapping[str, Any]) -> None:
        """The try is over; `attempt` as a receipt shows it."""

    def end(self, error: str | None, finished: FinishedRequest | None) -> None:
        """The request is over.

        Args:
            error: code of the error that the client got, `None` without one.
            finished: what became of it, `None` when it ended before a decision.
        """


class Tracer(Protocol):
    """Begins traces; there is none unless the operator configured where they go."""

    def begin(self, path: str, headers: Mapping[bytes, bytes], request_id: str) -> RequestTrace:
        """A request came in; its headers may name the trace that it belongs to."""

    async def close(self) -> None:
        """Send what is left."""
