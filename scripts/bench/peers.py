"""The peers, each in an environment of its own, installed once into the cache."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "vllm-router": "vllm-router==0.1.17",
    "litellm": "litellm[proxy]==1.106.12",  # the newest whose extra can be installed whole
}


def cache() -> Path:
    """Where peers are kept between runs: `$BRAIN_BENCH_CACHE`, else the user's cache."""
    told = os.environ.get("BRAIN_BENCH_CACHE")
    return Path(told) if told else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brain-bench"


def installed(name: str, say: Callable[[str], None]) -> Path:
    """The environment of a peer, made on first use.

    Raises:
        RuntimeError: it could not be installed; the text has pip's last lines.
    """
    home = cache() / name
    marker = home / "installed"
    wanted = f"{PACKAGES[name]} on Python {sys.version}"  # as ours: a peer in Python is measured on the same one
    if marker.is_file() and marker.read_text() == wanted:
        return home
    say(f"installing {PACKAGES[name]} into {home}")
    home.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", PACKAGES[name]]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{PACKAGES[name]} cannot be installed:\n" + "\n".join(done.stderr.splitlines()[-5:]))
    marker.write_text(wanted)
    return home
