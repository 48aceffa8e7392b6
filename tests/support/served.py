"""A coordinator process with settings of the test's choosing, shared by the tests of a module.

Runs as a program too: `python -m tests.support.served JSON`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from brain_node.contract.identity import Identity
from tests.support.coordinator import CoordinatorProcess
from tests.support.processes import Program
from tests.support.raw_client import RawClient, Reply
from tests.support.raw_node import RawNode, Script, answer

ROOT = Path(__file__).parent.parent.parent
MODEL = "brain/mock"


class Served(CoordinatorProcess):
    """A coordinator for anybody to join. Settings by name; those of the gateway and its limits in groups.

    Attributes:
        secret: a key that may do a great deal.
    """

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        self._settings = settings
        self._identity = Identity.generate()
        super().__init__(data_dir)
        self.secret = self.key("paid")

    def _start(self) -> Program:
        settings = {**self._settings, "data_dir": str(self.data_dir), "port": self.port}
        program = Program([sys.executable, "-m", "tests.support.served", json.dumps(settings)], cwd=ROOT)
        self.url = program.wait_for("listens on ").rsplit(" ", 1)[1]
        self.port = int(self.url.rsplit(":", 1)[1])
        return program

    @asynccontextmanager
    async def node(self, script: Script = answer, *, new: bool = False, **options: Any) -> AsyncIterator[RawNode]:
        """A node that is ready, with this script from then on.

        Args:
            script: answers every job.
            new: one that was never here before, whose faults concern no other test; else it comes back, already measured.
            options: of the raw node.
        """
        identity = Identity.generate() if new or options else self._identity
        async with RawNode(self.url, identity=identity, script=partial(answer, pause_s=0.012), **options) as node:
            await asyncio.to_thread(
                self.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE", active=0
            )
            node.script = script
            node.jobs.clear()
            yield node

    def client(self, **options: Any) -> RawClient:
        """A raw client with the key."""
        return RawClient(self.url, self.secret, **options)

    async def ask(self, path: str, body: bytes | dict[str, Any], **headers: str) -> Reply:
        """One request on a connection of its own."""
        async with self.client() as client:
            return await client.exchange("POST", path, body, **headers)

    async def receipt(self, receipt_id: str) -> dict[str, Any]:
        """The body of a receipt."""
        async with self.client() as client:
            reply = await client.exchange("GET", f"/v1/receipts/{receipt_id}")
        assert reply.status == 200, reply.body
        return dict(reply.json["body"])


def _serve(given: dict[str, Any]) -> None:
    import uvloop

    from brain_coord.gateway.attempts import Limits
    from brain_coord.gateway.generation import GatewaySettings
    from brain_coord.gateway.guard import ConnectionBounds
    from brain_coord.gateway.relay import PhaseLimits
    from brain_coord.observe.logs import configure_logs
    from brain_coord.server import serve
    from brain_coord.settings import Settings

    configure_logs(as_json=True, level="info")
    phases = PhaseLimits(**given.pop("phases", {}))
    limits = Limits(phases=phases, **given.pop("limits", {}))
    gateway = GatewaySettings(limits=limits, **given.pop("gateway", {}))
    connections = ConnectionBounds(**given.pop("connections", {}))
    data_dir, catalog = Path(given.pop("data_dir")), given.pop("catalog", None)
    settings = Settings(
        data_dir=data_dir,
        catalog=Path(catalog) if catalog else None,
        token_required=False,
        gateway=gateway,
        connections=connections,
        **given,
    )

    def ready(_: object, port: int) -> None:
        sys.stdout.write(f"listens on http://127.0.0.1:{port}\n")
        sys.stdout.flush()

    uvloop.run(serve(settings, ready))


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
