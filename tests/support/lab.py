"""A coordinator process whose rules of time are shortened, so that minutes of the product pass within a test.

Runs as a program too: `python -m tests.support.lab JSON`.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.support.coordinator import CoordinatorProcess
from tests.support.processes import Program

ROOT = Path(__file__).parent.parent.parent

SHORT = {
    "brain_coord.fleet.health.FIRST_PROBE_S": 0.2,
    "brain_coord.fleet.health.MAX_PROBE_S": 0.8,
    "brain_coord.fleet.health.NEXT_PASS_S": 0.1,
    "brain_coord.probes.canaries.TICK_S": 0.05,
    "brain_coord.probes.canaries.DOUBT_S": (0.05, 0.1),
    "brain_coord.probes.opinions.PAUSE_S": (0.0, 0.02),
    "brain_coord.probes.referee.LOOK_S": 0.02,
    "brain_coord.probes.benchmarks.RETRY_FIRST_S": 0.1,
    "brain_coord.probes.benchmarks.RETRY_MAX_S": 0.2,
    "brain_coord.link.orders.SKIP_NOTICE_S": 0.1,
}
"""What a minute, an hour or an answer of 96 tokens is here; the rules themselves stay as they are."""


class Lab(CoordinatorProcess):
    """A coordinator for anybody to join, with settings and shortened times of the test's choosing."""

    def __init__(self, data_dir: Path, patches: dict[str, Any] | None = None, **settings: Any) -> None:
        self._given = {"patches": {**SHORT, **(patches or {})}, **settings}
        super().__init__(data_dir)

    def _start(self) -> Program:
        given = {**self._given, "data_dir": str(self.data_dir), "port": self.port}
        program = Program([sys.executable, "-m", "tests.support.lab", json.dumps(given)], cwd=ROOT)
        self.url = program.wait_for("listens on ").rsplit(" ", 1)[1]
        self.port = int(self.url.rsplit(":", 1)[1])
        return program

    def show(self, node_id: str) -> dict[str, Any]:
        """`brain-coord nodes show`."""
        return dict(self.command("nodes", "show", node_id))


def _serve(given: dict[str, Any]) -> None:
    import uvloop

    from brain_coord.fleet.addresses import AddressLimits
    from brain_coord.observe.logs import configure_logs
    from brain_coord.probes.pace import ProbeSettings
    from brain_coord.server import serve
    from brain_coord.settings import Settings

    for name, value in given.pop("patches").items():
        module, _, constant = name.rpartition(".")
        assert hasattr(importlib.import_module(module), constant), name
        setattr(importlib.import_module(module), constant, tuple(value) if isinstance(value, list) else value)
    configure_logs(as_json=True, level="info")
    probes = ProbeSettings(**{"canary_s": 0, "shadow_share": 0, **given.pop("probes", {})})
    addresses = AddressLimits(**given.pop("addresses", {}))
    given = {name: Path(value) if name in ("data_dir", "tokenizers") else value for name, value in given.items()}
    settings = Settings(**{"token_required": False, "probes": probes, "addresses": addresses, **given})

    def ready(_: object, port: int) -> None:
        sys.stdout.write(f"listens on http://127.0.0.1:{port}\n")
        sys.stdout.flush()

    uvloop.run(serve(settings, ready))


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
