"""The worked answers of both routers come out exactly, in every member they show."""

import json
from pathlib import Path

import pytest

from brain_coord.routing import decide, read_snapshot

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "routing.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_worked_answer_comes_out_exactly(vector):
    answer = decide(read_snapshot(vector["snapshot"])).to_dict()
    for part, expected in vector["expect"].items():
        if "ranked" in expected:
            shown = [set(entry) for entry in expected["ranked"]]
            ranked = zip(answer[part]["ranked"], shown, strict=True)
            answer[part]["ranked"] = [{name: entry[name] for name in names} for entry, names in ranked]
        assert {name: answer[part][name] for name in expected} == expected


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_every_member_of_a_worked_snapshot_is_understood(vector):
    assert read_snapshot(vector["snapshot"]).ignored == ()
