"""A real node process with a real engine: `brain-node join`, its engine processes, and its own status."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from brain_node.engine.environments import ENGINES_DIR_VARIABLE
from tests.support.engine_fixtures import engines
from tests.support.models import KnownTextModel
from tests.support.processes import Program

KNOWN_ID = "test/known-text"


def write_catalog(path: Path, model: KnownTextModel, model_id: str = KNOWN_ID) -> Path:
    """A catalog of one entry: the known-text model in its folder."""
    path.write_text(
        f'[[model]]\nid = "{model_id}"\nname = "Known text"\nrepo = "{model.path}"\nrevision = "local"\nparams_b = 0.001\n'
        f'context = 2048\nmin_vram_mib = 1024\nlicense = "apache-2.0"\ngated = false\ndevice = "any"\nargs = []\n'
    )
    return path


class NodeProcess:
    """`brain-node join`, restartable on the same data directory."""

    def __init__(self, url: str, data_dir: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._argv = [sys.executable, "-m", "brain_node", "join", url, "--data-dir", str(data_dir), *options]
        self._env = {ENGINES_DIR_VARIABLE: str(engines()), **(env or {})}
        self.program = Program(self._argv, env=self._env)

    def restart(self) -> None:
        """Start again after the process has ended."""
        assert not self.program.running
        self.program = Program(self._argv, env=self._env)

    def engine_processes(self) -> list[psutil.Process]:
        """Every process of the node's engines, the root first."""
        found = []
        for child in psutil.Process(self.program.pid).children(recursive=True):
            try:
                found.append((child.create_time(), child)) if child.is_running() else None
            except psutil.NoSuchProcess:
                continue
        return [child for _, child in sorted(found, key=lambda each: each[0])]

    def engine_root(self) -> psutil.Process:
        """The process that serves the engine's API."""
        return next(
            child
            for child in self.engine_processes()
            if "vllm.entrypoints.openai.api_server" in " ".join(child.cmdline())
        )

    def status(self) -> dict[str, Any]:
        """`brain-node status --json`."""
        done = subprocess.run(
            [sys.executable, "-m", "brain_node", "status", "--json", "--data-dir", str(self.data_dir)],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return dict(json.loads(done.stdout))

    def __enter__(self) -> "NodeProcess":
        return self

    def __exit__(self, *_: object) -> None:
        engines_left = self.engine_processes() if self.program.running else []
        self.program.kill()
        for process in engines_left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
