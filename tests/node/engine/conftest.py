"""Fixtures of the engine's tests: engines on the fake vLLM, on a fast clock, with nothing left behind."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from brain_node.engine.environments import Flavour
from brain_node.engine.spec import EngineSpec
from brain_node.engine.supervisor import EngineSupervisor
from brain_node.engine.surroundings import Surroundings
from brain_node.engine.timing import Timing
from tests.support.engine_fixtures import engine_env, known_text_model, smollm2_model
from tests.support.fake_vllm import FakeVllm, program

__all__ = ["engine_env", "known_text_model", "smollm2_model"]

FAST = 50.0
"""How much faster the supervisors' clock runs against the fake engine: 400 s become 8."""

TIMING = Timing(look_starting_s=5.0, look_timeout_s=100.0, canary_limit_s=75.0, stall_grace_s=25.0).faster(FAST)
"""What a real process needs real time for is given more of it."""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def around(data_dir: Path) -> Surroundings:
    return Surroundings(data_dir, timing=TIMING, base_env=os.environ)


MakeEngine = Callable[..., EngineSupervisor]


@pytest.fixture
async def fake_engine(around: Surroundings, tmp_path: Path) -> AsyncIterator[MakeEngine]:
    """Makes supervisors on the fake vLLM: `fake_engine(FakeVllm(...), FakeVllm(...))`; all are stopped at the end."""
    made: list[EngineSupervisor] = []

    def make(*starts: FakeVllm, model_id: str = "test/model", **wanted: object) -> EngineSupervisor:
        folder = tmp_path / f"fake{len(made)}"
        folder.mkdir()
        words = program(folder, *(starts or (FakeVllm(),)))
        spec = EngineSpec(model_id, tmp_path / "weights", words, Flavour.CPU, replica=len(made), **wanted)
        made.append(EngineSupervisor(spec, around))
        return made[-1]

    yield make
    for engine in made:
        await engine.stop()
        assert not engine.leftovers
