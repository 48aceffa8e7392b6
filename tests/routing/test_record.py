"""What a receipt keeps of a decision is enough to decide again, and notices a change."""

import copy
import json

import pytest
import rfc8785

from brain_coord.routing import (
    ClassRequest,
    ModelNeed,
    NodeRequest,
    Routing,
    SnapshotError,
    decide_auto_node,
    decide_class,
    decide_node,
    replay,
    routing_record,
)
from brain_coord.routing.vocabulary import Liveness, Privacy, ResourceClass
from tests.support.registries import MODEL, NEED, OTHER, a_class, a_node

CLASSES = [a_class(each, cost_usd=None) for each in ResourceClass]
CHOSEN = decide_class(ClassRequest(privacy=Privacy.PUBLIC, max_cost_usd=1.0), CLASSES)


def fleet(size):
    states = [Liveness.ONLINE, Liveness.OFFLINE]
    return [a_node(f"{i:04X}", state=states[i % 2], tok_s={MODEL: float(i + 1)}, rtt_ms=i / 10) for i in range(size)]


def record_of(size, keep=5):
    node = decide_node(NodeRequest(region="eu-north"), NEED, fleet(size))
    return json.loads(rfc8785.dumps(routing_record(Routing(CHOSEN, node), keep)))


def changed(record, path, value):
    record = copy.deepcopy(record)
    *parents, last = path
    part = record
    for name in parents:
        part = part[name]
    part[last] = value
    return record


@pytest.mark.parametrize("size", [0, 1, 10, 300])
def test_a_record_gives_the_same_decision_again(size):
    result = replay(record_of(size))
    assert result.same
    assert result.complete is (size <= 10)


def test_a_record_stays_small_however_many_nodes_there_were():
    assert len(rfc8785.dumps(record_of(2000))) < 8000


def test_a_record_says_how_many_nodes_there_were():
    node = record_of(300)["node"]
    assert (node["considered"], node["eligible"], len(node["snapshot"]["nodes"])) == (300, 150, 10)


def test_a_record_holds_nothing_of_other_models():
    nodes = [a_node("A", serves={MODEL, OTHER}, loaded={OTHER}, tok_s={MODEL: 1.0, OTHER: 2.0})]
    kept = routing_record(Routing(None, decide_node(NodeRequest(), NEED, nodes)))["node"]["snapshot"]["nodes"][0]
    assert (kept["serves"], kept["loaded"], kept["tok_s"]) == ([MODEL], [], {MODEL: 1.0})


@pytest.mark.parametrize("size", [4, 300])
@pytest.mark.parametrize(
    ("path", "value", "found_at"),
    [
        (("node", "decision", "selected"), "N-FFFF000000000000", "$.node.decision.selected"),
        (("node", "decision", "ranked", 0, "total"), 0.99, "$.node.decision.ranked[0].total"),
        (("node", "snapshot", "nodes", 0, "reliability"), 71, "$.node.decision.ranked[0].total"),
        (("node", "decision", "pool", "max_tok_s"), 1.0, "$.node.decision.pool.max_tok_s"),
        (("node", "decision", "rejections"), {}, "$.node.decision.rejections.N-0001000000000000"),
        (("class", "decision", "selected"), "CLOUD_GPU", "$.class.decision.selected"),
        (("class", "snapshot", "request", "privacy"), "PRIVATE", "$.class.decision.privacy"),
        (("class", "snapshot", "classes", 0, "cost_usd"), 9.0, "$.class.decision.order"),
    ],
)
def test_a_changed_record_is_found_out_and_the_place_is_named(size, path, value, found_at):
    result = replay(changed(record_of(size), path, value))
    assert not result.same
    assert any(difference.startswith(found_at) for difference in result.differences)


def test_a_pair_of_brain_auto_is_replayed_too():
    nodes = [a_node("A"), a_node("B", serves={OTHER}, loaded={OTHER}, active=2)]
    decision = decide_auto_node(NodeRequest(), [ModelNeed(OTHER), NEED], nodes)
    record = routing_record(Routing(None, decision))
    assert (replay(record).same, replay(record).complete) == (True, False)
    assert record["node"]["best"] == [
        {"model": OTHER, "node_id": nodes[1].node_id, "total": decision.ranked[1].score.total},
        {"model": MODEL, "node_id": nodes[0].node_id, "total": decision.ranked[0].score.total},
    ]
    assert not replay(changed(record, ("node", "best", 0, "total"), 0.99)).same


def test_a_pair_of_brain_auto_that_nobody_could_serve_is_replayed_too():
    assert replay(routing_record(Routing(None, decide_auto_node(NodeRequest(), [NEED], [])))).same


def test_a_decision_without_a_class_or_without_a_node_is_kept_as_null():
    record = routing_record(Routing(None, None))
    assert record == {"class": None, "node": None}
    assert replay(record).same


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ([], "$"),
        ({"node": {"snapshot": {}}}, "$.node.snapshot"),
        ({"node": {"snapshot": {"classes": []}}}, "$.node.snapshot"),
        ({"class": {"snapshot": {"classes": [{"class": "TAPE"}]}}}, "$.class.snapshot.classes[0].class"),
    ],
)
def test_what_is_no_record_is_refused_with_its_path(record, path):
    with pytest.raises(SnapshotError) as caught:
        replay(record)
    assert caught.value.path == path
