"""Commands run in this process: fast, and with their two streams apart."""

from collections.abc import Callable

import pytest
from click.testing import Result
from typer.testing import CliRunner

from brain_node.cli import app

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch, tmp_path) -> Run:
    monkeypatch.setenv("BRAIN_NODE_DATA_DIR", str(tmp_path / "data"))
    for name in ("BRAIN_NODE_URL", "BRAIN_NODE_TOKEN", "HF_TOKEN", "BRAIN_NODE_ENGINES_DIR"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, **options) -> Result:
        return CliRunner().invoke(app, list(words), prog_name="brain-node", **options)

    return run


@pytest.fixture
def data_dir(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder
