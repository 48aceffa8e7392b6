"""Environments of their own for clients that must not meet ours, made once into the test cache."""

import subprocess
import sys
from pathlib import Path

from tests.support.engine_fixtures import _locked, test_cache


def client_python(name: str, *requirements: str) -> Path:
    """The interpreter of an environment with these packages and what they need."""
    folder = test_cache() / "venvs" / name
    wanted = "\n".join(requirements)
    with _locked(test_cache() / f"venv-{name}.lock"):
        python, marker = folder / "bin" / "python", folder / "installed.txt"
        if not marker.is_file() or marker.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=120)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
            subprocess.run(install, check=True, timeout=600)
            marker.write_text(wanted)
    return python
