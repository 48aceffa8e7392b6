"""What `join` asks the planner for, and `doctor` and `models` with it."""

from pathlib import Path

import pytest

from brain_node.agent.doctor.machine import _weights_cache
from brain_node.agent.request import request_of
from brain_node.plan.records import AUTO
from brain_node.settings import SettingsError, resolve


def test_a_token_for_the_hub_opens_gated_models_to_the_planner(tmp_path):
    assert not request_of(resolve({}, {}, tmp_path)).gated
    request = request_of(resolve({"context": "4096", "slots": "3"}, {"HF_TOKEN": "HUB-TESTSECRET"}, tmp_path))
    assert (request.models, request.context, request.slots, request.gated) == ((AUTO,), 4096, 3, True)


def test_auto_beside_a_name_is_a_contradiction(tmp_path):
    with pytest.raises(SettingsError, match="auto"):
        request_of(resolve({"models": ["auto", "qwen/qwen3-8b"]}, {}, tmp_path))
    assert request_of(resolve({"models": ["auto", "auto"]}, {}, tmp_path)).models == (AUTO,)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HF_HUB_CACHE": "/models"}, "/models"),
        ({"HF_HOME": "/hub"}, "/hub/hub"),
        ({"XDG_CACHE_HOME": "/var/cache/brain-node"}, "/var/cache/brain-node/huggingface/hub"),
        ({}, str(Path.home() / ".cache/huggingface/hub")),
    ],
)
@pytest.mark.case("B-10")
def test_doctor_looks_for_room_where_the_weights_will_lie(environ, folder):
    assert _weights_cache(environ) == Path(folder)
