"""A snapshot is read whole or refused with the place of its first fault."""

import json

import pytest

from brain_coord.routing import SnapshotError, decide, read_snapshot
from brain_coord.routing.vocabulary import Basis, CommunityFirst, Mode, Plan
from tests.support.registries import MODEL, OTHER

NODE = {"node_id": "N-1", "state": "ONLINE", "slots": 1, "serves": [MODEL], "basis": "coordinator-timed"}


def with_node(**changes):
    return {"request": {"model": MODEL}, "nodes": [NODE, {**NODE, "node_id": "N-2", **changes}]}


def with_class(**changes):
    return {"classes": [{"class": "CLOUD_GPU", **changes}]}


def fault(snapshot):
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(snapshot)
    return caught.value.path, caught.value.problem


NOT_A_NUMBER = "must be a finite number of at least 0, not "


@pytest.mark.case("E-05")
@pytest.mark.parametrize("member", ["rtt_ms", "benchmark_tok_s", "ask_usd_per_1m"])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("1e999", "Infinity"),
        ("-1", "-1"),
        ('"12"', '"12"'),
        ("true", "true"),
        ("[]", "a list"),
        ("{}", "an object"),
        ("1" + "0" * 400, "1" + "0" * 39 + "…"),
    ],
)
def test_what_is_no_measurement_is_refused(member, value, shown):
    snapshot = json.loads(json.dumps(with_node(**{member: "HERE"})).replace('"HERE"', value))
    assert fault(snapshot) == (f"$.nodes[1].{member}", NOT_A_NUMBER + shown)


@pytest.mark.case("E-05")
def test_what_is_no_speed_is_refused_by_the_name_of_its_model():
    path, problem = fault(with_node(tok_s={OTHER: 1.0, MODEL: float("nan")}))
    assert path == f'$.nodes[1].tok_s["{MODEL}"]'
    assert problem == NOT_A_NUMBER + "NaN"


@pytest.mark.parametrize(
    ("snapshot", "path"),
    [
        ([], "$"),
        (None, "$"),
        ({}, "$"),
        ({"request": {"mode": "AUTO"}}, "$"),
        ({"classes": {}}, "$.classes"),
        ({"classes": [1]}, "$.classes[0]"),
        ({"classes": [{}]}, "$.classes[0].class"),
        ({"classes": [{"class": "cloud"}]}, "$.classes[0].class"),
        ({"classes": [{"class": "CLOUD_GPU"}, {"class": "CLOUD_GPU"}]}, "$.classes[1].class"),
        (with_class(supported="yes"), "$.classes[0].supported"),
        (with_class(reliability=1.01), "$.classes[0].reliability"),
        (with_class(quality=-0.1), "$.classes[0].quality"),
        (with_class(confidence=1.5), "$.classes[0].confidence"),
        ({**with_class(), "community_first": "always"}, "$.community_first"),
        ({**with_class(), "request": []}, "$.request"),
        ({**with_class(), "request": {"mode": "fastest"}}, "$.request.mode"),
        ({**with_class(), "request": {"privacy": 1}}, "$.request.privacy"),
        ({**with_class(), "request": {"plan": []}}, "$.request.plan"),
        ({**with_class(), "request": {"max_cost_usd": -1}}, "$.request.max_cost_usd"),
        ({"nodes": []}, "$.request.model"),
        ({"nodes": [], "request": {"model": ""}}, "$.request.model"),
        ({"nodes": [], "model": {}}, "$.model.id"),
        ({"nodes": [], "model": {"id": MODEL}, "request": {"model": OTHER}}, "$.model.id"),
        ({"nodes": [], "model": {"id": MODEL, "min_vram_mib": -1}}, "$.model.min_vram_mib"),
        ({"nodes": [], "models": [{"id": MODEL}, {"id": MODEL}], "request": {"model": MODEL}}, "$.models[1].id"),
        (with_node(node_id=None), "$.nodes[1].node_id"),
        (with_node(node_id="N-1"), "$.nodes[1].node_id"),
        (with_node(node_id="\ud800"), "$.nodes[1].node_id"),
        (with_node(state=None), "$.nodes[1].state"),
        (with_node(state="online"), "$.nodes[1].state"),
        (with_node(slots=None), "$.nodes[1].slots"),
        (with_node(slots=2**53), "$.nodes[1].slots"),
        (with_node(active=True), "$.nodes[1].active"),
        (with_node(queue=-1), "$.nodes[1].queue"),
        (with_node(serves="x"), "$.nodes[1].serves"),
        (with_node(serves=[MODEL, 3]), "$.nodes[1].serves[1]"),
        (with_node(tok_s=[]), "$.nodes[1].tok_s"),
        (with_node(vram_mib=0.5), "$.nodes[1].vram_mib"),
        (with_node(basis="claimed"), "$.nodes[1].basis"),
        (with_node(reliability=101), "$.nodes[1].reliability"),
        (with_node(region=5), "$.nodes[1].region"),
    ],
)
def test_a_fault_is_named_by_its_place(snapshot, path):
    assert fault(snapshot)[0] == path


def test_a_choice_that_is_none_lists_the_words():
    assert fault({**with_class(), "community_first": "always"})[1] == 'must be one of free, all, off, not "always"'


def test_absent_parts_take_what_the_reference_says():
    snapshot = read_snapshot({"classes": [{"class": "CLOUD_GPU"}]})
    request, state = snapshot.class_request, snapshot.classes[0]
    assert snapshot.community_first is CommunityFirst.FREE
    assert (request.mode, request.plan, request.privacy, request.carries_plaintext) == (
        Mode.AUTO,
        Plan.FREE,
        None,
        True,
    )
    assert (state.supported, state.available, state.mock, state.confidence) == (True, True, False, 0)
    assert (state.cost_usd, state.latency_ms, state.reliability, state.quality) == (None,) * 4


def test_absent_members_of_a_node_are_unknown_and_never_good_news():
    node = read_snapshot({"model": {"id": MODEL}, "nodes": [{"node_id": "N-1", "state": "ONLINE", "slots": 1}]}).nodes[
        0
    ]
    assert (node.serves, node.loaded, dict(node.tok_s)) == (frozenset(), frozenset(), {})
    assert (node.basis, node.reliability) == (Basis.UNMEASURED, 70)
    assert (node.reported_vram_mib, node.benchmark_tok_s, node.rtt_ms) == (None, None, None)
    assert (node.region, node.ask_usd_per_1m) == (None, None)


def test_null_is_the_same_as_absent():
    nulls = dict.fromkeys(["rtt_ms", "region", "queue", "tok_s", "loaded", "reliability", "basis", "vram_mib"])
    bare = {"node_id": "N-1", "state": "ONLINE", "slots": 1}
    whole = {"model": {"id": MODEL}, "request": None, "classes": None, "nodes": [{**bare, **nulls}]}
    assert read_snapshot(whole) == read_snapshot({"model": {"id": MODEL}, "nodes": [bare]})


def test_only_what_is_there_is_decided():
    assert decide(read_snapshot(with_class())).to_dict()["node"] is None
    assert decide(read_snapshot(with_node())).to_dict()["class"] is None


def test_a_model_without_nodes_is_decided_too():
    reason = decide(read_snapshot({"model": {"id": MODEL}})).to_dict()["node"]["reason"]
    assert reason == f"0 of 0 nodes can serve {MODEL} right now (no node has joined)"


def test_the_model_may_be_named_by_either_side():
    for snapshot in (
        {"nodes": [NODE], "model": {"id": MODEL}},
        {"nodes": [NODE], "request": {"model": MODEL}},
        {"nodes": [NODE], "request": {"model": MODEL}, "models": [{"id": OTHER}, {"id": MODEL}]},
    ):
        assert decide(read_snapshot(snapshot)).node_decision.selected == "N-1"


def test_brain_auto_chooses_among_the_models_of_the_snapshot():
    both = {"models": [{"id": OTHER}, {"id": MODEL}, {"id": "brain/mock", "mock": True}]}
    answer = decide(read_snapshot({**both, "request": {"model": "brain/auto"}, "nodes": [NODE]})).to_dict()["node"]
    assert (answer["model"], answer["selected"]) == (MODEL, "N-1")


@pytest.mark.parametrize(
    ("parts", "names_node_model"),
    [
        ({"request": {"model": MODEL}, "nodes": [NODE]}, True),
        ({"request": {"model": OTHER}, "nodes": [NODE]}, False),
        ({"request": {"model": OTHER}, "nodes": [], "model": {"id": OTHER}}, True),
        ({"request": {"model": OTHER}, "nodes": [], "models": [{"id": OTHER}]}, True),
        ({"request": {"model": OTHER}, "nodes": [], "models": [{"id": MODEL}]}, False),
        ({"request": {"model": "brain/auto"}, "nodes": [NODE], "models": [{"id": MODEL}]}, False),
        ({"request": {"model": MODEL, "names_node_model": False}, "nodes": [NODE]}, False),
        ({"request": {"names_node_model": True}}, True),
        ({"request": {}}, False),
    ],
)
def test_a_request_names_a_node_model_when_the_nodes_or_their_catalog_do(parts, names_node_model):
    assert read_snapshot({**with_class(), **parts}).class_request.names_node_model is names_node_model


def test_members_that_a_snapshot_does_not_have_are_listed_not_refused():
    snapshot = {**with_node(rtt=3), "note": "x", "request": {"model": MODEL, "max_cost": 1}}
    assert set(read_snapshot(snapshot).ignored) == {"$.note", "$.request.max_cost", "$.nodes[1].rtt"}


def test_minus_zero_is_zero():
    node = read_snapshot(with_node(rtt_ms=-0.0)).nodes[1]
    assert str(node.rtt_ms) == "0.0"
