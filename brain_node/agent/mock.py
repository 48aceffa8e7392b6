"""The mock as an engine source: `--engine mock` serves `brain/mock` and nothing else."""

from collections.abc import Sequence
from typing import Any, Literal

from brain_node import __version__
from brain_node.agent.mock_server import MockServer
from brain_node.agent.source import Changed, Places, details_of
from brain_node.contract.catalog import MOCK_MODEL_ID
from brain_node.contract.messages import EngineClaim, Job, ModelOffer
from brain_node.relay.lease import Endpoint, Lease

DEFAULT_SLOTS = 8


class MockSource:
    """Runs the mock server in this process."""

    kind = "mock"
    uses_cards = False

    def __init__(self, slots: int | None = None, word_s: float = 0.01) -> None:
        self._slots = slots or DEFAULT_SLOTS
        self._server = MockServer(word_s)
        self._places: Places | None = None
        """Once it listens."""

    @property
    def version(self) -> str | None:
        """The agent's own version: the mock is part of it."""
        return __version__

    async def start(self, changed: Changed) -> None:
        """Start the server, which is ready at once."""
        await self._server.start()
        self._places = Places(Endpoint(self._server.base_url, None, MOCK_MODEL_ID), self._slots)
        changed()

    async def stop(self) -> None:
        """Stop the server."""
        await self._server.stop()

    def offers(self) -> Sequence[ModelOffer]:
        """`brain/mock`, while it runs."""
        return [ModelOffer(id=MOCK_MODEL_ID, loaded=True, slots=self._slots)] if self._server.base_url else []

    def claims(self) -> Sequence[EngineClaim]:
        """The mock's state."""
        return [EngineClaim(model=MOCK_MODEL_ID, state="ready" if self._server.base_url else "starting")]

    def details(self) -> list[dict[str, Any]]:
        """The same for people."""
        return details_of(self.claims())

    def claim(self, job: Job) -> Lease | Literal["no_engine", "busy"]:
        """The mock server, for its own model only."""
        if job.model != MOCK_MODEL_ID or self._places is None:
            return "no_engine"
        return self._places.take() or "busy"
