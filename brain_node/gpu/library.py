"""Loading the driver's library and starting it: the binding's own search first, then the places WSL keeps it in."""

import ctypes
import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml

from brain_node.gpu.problems import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, cannot_start
from brain_node.gpu.records import Problem

SONAME: Final = "libnvidia-ml.so.1"

WSL_LIBRARIES: Final = (
    f"/usr/lib/wsl/lib/{SONAME}",
    "/usr/lib/wsl/lib/libnvidia-ml.so",
    f"/usr/lib/wsl/drivers/*/{SONAME}",
)
"""Where Windows puts its driver's library; a Linux driver package may have put a useless one before it."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What decides where the library is looked for."""

    wsl: bool
    wsl_libraries: Sequence[str] = WSL_LIBRARIES

    @classmethod
    def here(cls) -> "Platform":
        """The machine this runs on."""
        try:
            release = Path("/proc/sys/kernel/osrelease").read_text(encoding="ascii", errors="replace")
        except OSError:
            release = ""
        return cls(wsl="microsoft" in release.lower())


def start(platform: Platform) -> Problem | None:
    """Load the driver's library and initialise it, or say why that failed.

    Where it fails in a way that another copy of the library may cure, the copies that WSL keeps are tried as well.
    """
    tried: list[str] = []
    first: pynvml.NVMLError | None = None
    for path in (None, *(_wsl_copies(platform) if platform.wsl else ())):
        tried.append(path or SONAME)
        try:
            _use_library(path)
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            first = first or error
            if error.value not in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED):
                first = error
                break
        else:
            return None
    assert first is not None
    return cannot_start(first.value, str(first), tried if platform.wsl else [], wsl=platform.wsl)


def _use_library(path: str | None) -> None:
    # The binding has no way to be told a path: it keeps the library in this variable and loads it only when it is None.
    # Its cache of functions belongs to the library that was there before.
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    if path is None:
        return
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError:
        raise pynvml.NVMLError(LIBRARY_NOT_FOUND) from None


def _wsl_copies(platform: Platform) -> list[str]:
    return [path for pattern in platform.wsl_libraries for path in sorted(glob.glob(pattern)) or [pattern]]  # noqa: PTH207 - absolute patterns
