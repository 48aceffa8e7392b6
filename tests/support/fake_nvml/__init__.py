"""A machine with NVIDIA cards made of a text file: `libnvidia-ml.so.1` built from C, behind the real binding.

In this process: `load_into_this_process(library)` once and set FAKE_NVML_STATE. For a child process: `env=fake.env(library)`.
Change `fake.cards[...]`, `fake.processes`, `fake.system` at any time and call `fake.write()`: the next NVML call sees it.
"""

import ctypes
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

MIB = 1 << 20
SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(folder: Path, *, without_memory_v2: bool = False) -> Path:
    """Compile the library into `folder` (made if need be) and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    command += ["-DWITHOUT_MEMORY_V2"] if without_memory_v2 else []
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
    return library


def card(
    name: str,
    total_mib: int,
    *,
    used_mib: int = 0,
    reserved_mib: int = 0,
    uuid: str | None = None,
    cc: str = "8.9",
    **fields: Any,
) -> dict[str, Any]:
    """One `gpu` record; `fields` are those of fake_nvml.c (`handle_error`, `memory_error`, `mig`, …)."""
    record = {"uuid": uuid, "name": name, "cc": cc, "total": total_mib * MIB, "used": used_mib * MIB}
    return {**record, "reserved": reserved_mib * MIB, **fields}


def mig_slice(gpu: int, place: int, uuid: str, total_mib: int, *, used_mib: int = 0, **fields: Any) -> dict[str, Any]:
    """One `mig` record."""
    record = {"gpu": gpu, "place": place, "uuid": uuid, "total": total_mib * MIB, "used": used_mib * MIB}
    return {"name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "cc": "8.0", **record, **fields}


@dataclass
class FakeNvml:
    """The state file of one fake machine."""

    path: Path
    cards: list[dict[str, Any]] = field(default_factory=list)
    slices: list[dict[str, Any]] = field(default_factory=list)
    processes: list[dict[str, Any]] = field(default_factory=list)
    system: dict[str, Any] = field(default_factory=lambda: {"driver": "580.65.06", "cuda": 13000})
    missing: list[str] = field(default_factory=list)

    def write(self) -> Self:
        """Put the state on disk, whole or not at all."""
        rows = [("system", self.system), *(("missing", {"function": name}) for name in self.missing)]
        for index, record in enumerate(self.cards):
            uuid = record.get("uuid") or f"GPU-{index:08x}-0000-4000-8000-{index:012x}"
            rows.append(("gpu", {**record, "uuid": uuid}))
        rows += [("mig", record) for record in self.slices]
        rows += [("process", record) for record in self.processes]
        lines = ["\t".join([kind, *(f"{key}={value}" for key, value in record.items())]) for kind, record in rows]
        draft = self.path.with_suffix(".new")
        draft.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        draft.replace(self.path)
        return self

    def uuid(self, index: int) -> str:
        """The UUID of card `index`."""
        given: str | None = self.cards[index].get("uuid")
        return given or f"GPU-{index:08x}-0000-4000-8000-{index:012x}"

    def env(self, library: Path) -> dict[str, str]:
        """Environment of a child process that shall see this machine."""
        return {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_STATE": str(self.path)}


def load_into_this_process(library: Path) -> None:
    """Make the binding find `library`: a library already loaded under that soname is taken before any search."""
    ctypes.CDLL(str(library))
