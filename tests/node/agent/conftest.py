"""Machines with fake cards and fake engines, on a fast clock."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from brain_node.agent import vllm as vllm_module
from brain_node.agent.hardware import Hardware
from brain_node.agent.vllm import VllmSource
from brain_node.agent.weights import weights_from_hub
from brain_node.contract.catalog import load_catalog
from brain_node.engine.environments import Flavour
from brain_node.engine.surroundings import Surroundings
from brain_node.engine.timing import Timing
from brain_node.plan.records import PlanRequest
from tests.support.fake_environment import make_catalog, make_environment
from tests.support.fake_nvml import FakeNvml, build, load_into_this_process
from tests.support.fake_vllm import FakeVllm

TIMING = Timing(look_starting_s=5.0, look_timeout_s=100.0, canary_limit_s=100.0, stall_grace_s=25.0).faster(50.0)

MakeSource = Callable[..., VllmSource]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = build(tmp_path_factory.mktemp("nvml"))
    load_into_this_process(path)
    return path


@pytest.fixture
def machine(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    made = FakeNvml(tmp_path / "machine.txt").write()
    monkeypatch.setenv("FAKE_NVML_STATE", str(made.path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


@pytest.fixture
async def make_source(tmp_path: Path, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeSource]:
    """`make_source(flavour, {model: MiB}, *starts, **request)`: a source whose engines end with the test."""
    monkeypatch.setattr(vllm_module, "WATCH_S", 0.02)
    monkeypatch.setattr(vllm_module, "REPLAN_S", 0.04)
    made: list[tuple[VllmSource, Hardware]] = []

    def make(flavour: Flavour | None, models: dict[str, int], *starts: FakeVllm, **request: object) -> VllmSource:
        engines = tmp_path / "engines"
        if flavour is not None:
            monkeypatch.setattr("brain_node.engine.environments.default_flavour", lambda: flavour)
            make_environment(engines, flavour, *starts)
        catalog = load_catalog(make_catalog(tmp_path / "models", **models))
        request.setdefault("models", tuple(f"test/{name}" for name in models))
        request.setdefault("replicas", False)
        hardware = Hardware({})
        source = VllmSource(
            catalog,
            PlanRequest(**request),
            engines,
            weights_from_hub(tmp_path, None),
            hardware,
            Surroundings(tmp_path, timing=TIMING),
        )
        made.append((source, hardware))
        return source

    yield make
    for source, hardware in made:
        with contextlib.suppress(Exception):
            await source.stop()
        assert all(not engine.supervisor.leftovers for engine in source.engines)
        hardware.close()


async def sampled(source: VllmSource) -> None:
    """Look at the cards, as the agent does every few seconds."""
    await source._hardware.sample()
