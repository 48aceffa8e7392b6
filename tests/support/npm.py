"""Packages of the npm registry, installed once into the test cache."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.engine_fixtures import _locked, test_cache


def npm_folder(name: str, **packages: str) -> Path:
    """A folder in which these packages (name to version range) can be imported."""
    folder = test_cache() / "npm" / name
    wanted = json.dumps({"private": True, "type": "module", "dependencies": packages}, sort_keys=True)
    with _locked(test_cache() / f"npm-{name}.lock"):
        marker = folder / "installed.json"
        if not marker.is_file() or marker.read_text() != wanted:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text(wanted)
            subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=300
            )
            marker.write_text(wanted)
    return folder


@pytest.fixture(scope="session")
def openai_node() -> Path:
    """A folder with OpenAI's official client for Node.js."""
    return npm_folder("openai", openai="^6.0.0")
