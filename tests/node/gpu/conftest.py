"""One fake driver library for this process and one without the newer memory call for child processes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brain_node.gpu.library import Platform
from brain_node.gpu.reader import GpuReader
from tests.support.fake_nvml import FakeNvml, build, load_into_this_process


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = build(tmp_path_factory.mktemp("nvml"))
    load_into_this_process(path)
    return path


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("old-nvml"), without_memory_v2=True)


@pytest.fixture
def fake(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    machine = FakeNvml(tmp_path / "machine.txt").write()
    monkeypatch.setenv("FAKE_NVML_STATE", str(machine.path))
    return machine


@pytest.fixture
def reader(fake: FakeNvml) -> Iterator[GpuReader]:
    made = GpuReader(environment={}, platform=Platform(wsl=False))
    yield made
    made.close()


READ_AND_PRINT = """
import json, sys
from brain_node.gpu.feed import Reading
from brain_node.gpu.library import Platform
from brain_node.gpu.reader import GpuReader
from brain_node.gpu.view import reading_json
wsl = sys.argv[1:]
reader = GpuReader(environment={}, platform=Platform(wsl=bool(wsl), wsl_libraries=wsl))
print(json.dumps(reading_json(Reading(reader.read(), 0.0))))
"""


@pytest.fixture
def gpus_of_child() -> Callable[..., dict[str, Any]]:
    """What a process of its own reads: it alone can find another library, or none."""

    def read(env: dict[str, str], wsl_library: Path | None = None) -> dict[str, Any]:
        command = [sys.executable, "-c", READ_AND_PRINT, *([str(wsl_library)] if wsl_library else [])]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return read
