"""Our figures and our questions on a real vLLM: decode speed beside vLLM's own and a direct client's, canaries on a real model."""

import pytest

from brain_node.engine.models.smollm2 import LocalModel
from tests.support.engine_fixtures import engine_env, smollm2_model  # noqa: F401
from tests.support.real_canaries import right_answers
from tests.support.real_rates import MODEL, measure, real_rig

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, smollm2_model: LocalModel):  # noqa: F811
    with real_rig(tmp_path_factory.mktemp("rates"), smollm2_model.path) as rig:
        yield rig


async def test_our_decode_speed_is_vllms_own_and_a_direct_clients(rig):
    rates = await measure(rig, repeats=3)
    assert 0.7 < rates.beside_vllm < 1.4, rates
    # Answers in turn see another machine each time; on a busy one their speeds differ by themselves.
    assert 0.25 < rates.beside_direct < 4, rates


async def test_a_model_far_smaller_than_any_that_is_asked_echoes_and_one_in_the_place_of_a_larger_fails_sums(rig):
    async with rig.engine() as engine:
        assert len(await right_answers(engine, MODEL, "echo", range(24))) >= 20
        assert len(await right_answers(engine, MODEL, "sum", range(24))) <= 8
