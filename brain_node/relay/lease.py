"""What a job needs to know of the engine it runs on, and who gives engines to jobs."""

from dataclasses import dataclass
from typing import Literal, Protocol

from brain_node.contract.messages import Job

Outcome = Literal["ok", "engine_error", "engine_lost", "engine_refused", "timeout", "cancelled"]
"""How a job ended for the engine: `engine_error` is an HTTP status of 500 or above, `cancelled` any end we chose."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine listens."""

    base_url: str
    """Without a slash at its end; job paths (`/v1/…`) are appended."""
    api_key: str | None
    served_name: str
    """The model's name at the engine; when it is not the catalog id, requests and answers are renamed."""
    several: bool = False
    """Whether it may have other models too, so that no request may be left to name one itself."""


class Lease(Protocol):
    """One engine, held for one job."""

    endpoint: Endpoint

    def progress(self) -> None:
        """The engine sent something just now. Called for every read: it must be as cheap as an assignment."""

    def finished(self, outcome: Outcome) -> None:
        """The job is over, called exactly once."""


class Engines(Protocol):
    """Who gives engines to jobs."""

    def claim(self, job: Job) -> Lease | Literal["no_engine", "draining", "busy"]:
        """A ready engine with room for the job, or why there is none; never waits."""
