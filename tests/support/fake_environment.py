"""An engine environment whose vLLM is the fake one, and a catalog of models in local folders to go with it."""

import json
from pathlib import Path

from brain_node.engine.environments import MARKER_FORMAT, MARKER_NAME, Flavour
from tests.support.fake_vllm import FakeVllm, program

MODEL = """[[model]]
id = "{id}"
name = "{id}"
repo = "{folder}"
revision = "main"
params_b = {params_b}
context = 2048
min_vram_mib = {min_vram_mib}
license = "mit"
gated = false
device = "any"
args = []
"""


def make_environment(engines: Path, flavour: Flavour, *starts: FakeVllm) -> Path:
    """Make the environment; returns the fake's script, for `rewrite` and `starts_of`."""
    root = engines / f"{flavour.value}-0.32.0"
    python = root / "bin" / "python"
    python.parent.mkdir(parents=True)
    words = program(root, *(starts or (FakeVllm(),)))
    # The engine is started as `python -m module …`: the module's name is the fake's to ignore.
    python.write_text("#!/bin/sh\nshift 2\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
    python.chmod(0o755)
    marker = {
        "format": MARKER_FORMAT,
        "flavour": flavour.value,
        "version": "0.32.0",
        "torch": "2.13.0",
        "requirements_sha256": "0",
        "installed_at": "2026-01-01T00:00:00Z",
    }
    (root / MARKER_NAME).write_text(json.dumps(marker))
    return root / "fake-vllm.json"


def make_catalog(folder: Path, **min_vram_mib: int) -> Path:
    """A catalog file with models `test/NAME`, each wanting so many MiB on a card."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, size in min_vram_mib.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text("{}")
        rows.append(
            MODEL.format(id=f"test/{name}", folder=folder / name, min_vram_mib=size, params_b=max(0.01, size / 4096))
        )
    path = folder / "catalog.toml"
    path.write_text("\n".join(rows))
    return path
