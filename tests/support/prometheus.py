"""Debian's Prometheus over one coordinator, on loopback, for as long as a test lasts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.support.coordinator import eventually
from tests.support.ports import free_port
from tests.support.processes import Program


class Prometheus:
    """A server that scrapes every second."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        reply = self._client.get("/api/v1/query", params={"query": expression}).json()
        assert reply["status"] == "success", (expression, reply)
        return list(reply["data"]["result"])


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the coordinator at this URL, with the shipped rules."""
    rules = Path("packaging/prometheus/brain.rules.yml").resolve()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": "brain-coordinator", "static_configs": [{"targets": [urlsplit(target).netloc]}]}
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    program = Program(
        [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
    )
    with program, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        program.wait_for("Server is ready")
        server = Prometheus(client)
        eventually(lambda: server.query("up == 1"), 30)
        yield server
