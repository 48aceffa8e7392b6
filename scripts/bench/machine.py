"""Facts about the machine and the programs, for whoever compares figures later."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from scripts.bench.peers import PACKAGES
from scripts.bench.systems import ROOT


def facts(folder: Path) -> dict[str, Any]:
    """What stands in the JSON beside the figures; `folder` is where the store lies."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _read("/proc/cpuinfo").splitlines()
            if line.startswith("model name")
        ),
        None,
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": sys.version,  # with the compiler: builds without profile-guided optimisation are a sixth slower
        "store_filesystem": _filesystem(folder),
        "load_before": os.getloadavg()[0],
        "packages": {
            name: metadata.version(name) for name in ("uvicorn", "uvloop", "httptools", "websockets", "aiohttp")
        },
        "peers": PACKAGES,
        "commit": _commit(),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _filesystem(folder: Path) -> str | None:
    best: tuple[int, str | None] = (-1, None)
    for part in psutil.disk_partitions(all=True):
        if folder.is_relative_to(part.mountpoint) and len(part.mountpoint) > best[0]:
            best = (len(part.mountpoint), part.fstype)
    return best[1]


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
