"""The engine environments on this machine: where they lie and which of them are whole.

An engine (vLLM) never shares the agent's environment: it pins hundreds of packages. Each lies in
`<engines>/<flavour>-<version>/` and counts only once its marker file is there, which an install writes last.
"""

import json
import os
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

ENGINES_DIR_VARIABLE: Final = "BRAIN_NODE_ENGINES_DIR"
TORCH_INDEX_VARIABLE: Final = "BRAIN_NODE_TORCH_INDEX"
MARKER_NAME: Final = "brain-engine.json"
MARKER_FORMAT: Final = 1


class Flavour(StrEnum):
    """Which build of the engine an environment holds."""

    CUDA = "cuda"  # the regular vLLM, for NVIDIA cards
    CPU = "cpu"  # vLLM for machines without one: small models only


DEFAULT_VERSION: Final = "0.32.0"


@dataclass(frozen=True, slots=True)
class EngineEnv:
    """One whole engine environment."""

    flavour: Flavour
    version: str
    """Of vLLM."""
    root: Path
    torch: str
    """Version of torch in it, with its local part (`2.13.0+cpu`)."""
    requirements_sha256: str
    """Of what was asked to be installed: another list makes the environment due for a new install."""
    installed_at: str
    """Wall time, ISO 8601 in UTC: a label only."""

    @property
    def python(self) -> Path:
        """The interpreter that has the engine."""
        return self.root / "bin" / "python"

    @property
    def name(self) -> str:
        """The folder's name, such as `cpu-0.32.0`."""
        return f"{self.flavour.value}-{self.version}"

    def as_json(self) -> dict[str, str]:
        """What `--json` shows of it."""
        return {
            "name": self.name,
            "flavour": self.flavour.value,
            "version": self.version,
            "torch": self.torch,
            "path": str(self.root),
            "python": str(self.python),
            "installed_at": self.installed_at,
        }


def engines_dir(data_dir: Path) -> Path:
    """Where engine environments lie: `BRAIN_NODE_ENGINES_DIR` if set, else `engines` in the data directory.

    Environments hold no secrets and weigh gigabytes, so several nodes (and the tests) may share one folder.
    """
    named = os.environ.get(ENGINES_DIR_VARIABLE, "")
    return Path(named).expanduser().absolute() if named else data_dir.absolute() / "engines"


def environment_root(engines: Path, flavour: Flavour, version: str) -> Path:
    """The folder of one environment, whether it is there or not."""
    return engines / f"{flavour.value}-{version}"


def read_environment(root: Path) -> EngineEnv | None:
    """The environment in `root`, or `None` when it is missing, half made, or its interpreter is gone."""
    try:
        marker = json.loads((root / MARKER_NAME).read_text(encoding="utf-8"))
        if marker["format"] != MARKER_FORMAT:
            return None
        found = EngineEnv(
            flavour=Flavour(marker["flavour"]),
            version=str(marker["version"]),
            root=root,
            torch=str(marker["torch"]),
            requirements_sha256=str(marker["requirements_sha256"]),
            installed_at=str(marker["installed_at"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # The interpreter is a link to the system's: an upgrade of the system may take it away.
    return found if os.access(found.python, os.X_OK) else None


def list_environments(engines: Path) -> tuple[EngineEnv, ...]:
    """All whole environments, by flavour, the newest version of each first."""
    if not engines.is_dir():
        return ()
    found = [env for root in sorted(engines.iterdir()) if root.is_dir() and (env := read_environment(root))]
    return tuple(sorted(found, key=lambda env: (env.flavour is not Flavour.CUDA, _newest_first(env.version))))


def find_environment(engines: Path, flavour: Flavour | None = None, version: str | None = None) -> EngineEnv | None:
    """The environment to use: of the flavour this machine wants unless one is named, the newest version of it."""
    wanted = flavour or default_flavour()
    for env in list_environments(engines):
        if env.flavour is wanted and version in (None, env.version):
            return env
    return None


def default_flavour() -> Flavour:
    """`cuda` where an NVIDIA driver is, else `cpu`."""
    return Flavour.CUDA if has_nvidia_driver() else Flavour.CPU


def has_nvidia_driver() -> bool:
    """Whether an NVIDIA driver is on this machine, also one under WSL; says nothing of its health."""
    places = ("/proc/driver/nvidia/version", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/dev/nvidiactl")
    return any(Path(place).exists() for place in places) or shutil.which("nvidia-smi") is not None


def _newest_first(version: str) -> tuple[int, ...]:
    return tuple(-int(part) if part.isdigit() else 0 for part in version.split("."))
