"""The seam between the agent and whatever serves its models: launched engines, a server that runs already, the mock."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from brain_node.contract.limits import ID_CHARS
from brain_node.contract.messages import EngineClaim, Job, ModelOffer
from brain_node.relay.lease import Endpoint, Lease, Outcome

Changed = Callable[[], None]
"""Called by a source whenever `offers` or `claims` changed."""


class EngineSource(Protocol):
    """What serves models on this node. One object owns its engines; the agent only asks and tells."""

    kind: str
    """`vllm`, `attach` or `mock`."""

    @property
    def uses_cards(self) -> bool:
        """Whether a fault of the driver is a fault of this node."""

    @property
    def version(self) -> str | None:
        """Version of the engine software, once known."""

    async def start(self, changed: Changed) -> None:
        """Begin; returns once things are under way, not when they are ready."""

    async def stop(self) -> None:
        """End everything this source started."""

    def offers(self) -> Sequence[ModelOffer]:
        """Models that answer right now."""

    def claims(self) -> Sequence[EngineClaim]:
        """The state of every engine, ready or not."""

    def details(self) -> list[dict[str, Any]]:
        """Every engine for people: at least `model`, `state`, and a `sentence`; more where there is more to tell."""

    def claim(self, job: Job) -> Lease | Literal["no_engine", "busy"]:
        """A ready engine with room for the job, or why there is none."""


def one_line(text: str) -> str:
    """A text as a claim may carry it: printable, on one line, not too long; anything else the other side would drop."""
    words = "".join(char if char.isprintable() else " " for char in text).split()
    return " ".join(words)[: 4 * ID_CHARS]


def details_of(claims: Sequence[EngineClaim]) -> list[dict[str, Any]]:
    """The details of engines about which the claims say everything."""
    rows = [claim.model_dump(mode="json", exclude_none=True) for claim in claims]
    return [{**row, "sentence": row.get("cause") or row["state"].replace("_", " ")} for row in rows]


class Places:
    """The places of an endpoint which needs no further bookkeeping; it is itself the lease of every job there.

    Args:
        endpoint: where it listens.
        slots: most jobs at a time.
    """

    def __init__(self, endpoint: Endpoint, slots: int) -> None:
        self.endpoint = endpoint
        self._free = slots

    def take(self) -> "Places | None":
        """A place for one job, if one is free."""
        if self._free <= 0:
            return None
        self._free -= 1
        return self

    def progress(self) -> None:
        """Nobody watches for a hang here: the server belongs to somebody else."""

    def finished(self, _: Outcome) -> None:
        """Give one place back."""
        self._free += 1
