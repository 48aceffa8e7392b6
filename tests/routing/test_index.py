"""The index gives the answers of the pure routers, whatever the fleet is and whatever happened to it."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brain_coord.routing import Routing, decide_auto_node, decide_node, replay, routing_record
from brain_coord.routing.index import RANKED_LISTED, NodeIndex
from brain_coord.routing.inputs import NodeRequest
from brain_coord.routing.vocabulary import Liveness
from brain_coord.routing.weights import NAMED_NODES
from tests.support.fleets import CATALOG, NAMES, random_fleet, random_id, random_node, random_request, twins
from tests.support.registries import CATALOGS, MODEL, NEED, NODE_REQUESTS, a_node, registries

SEEDS = st.integers(0, 2**32)


def index_of(nodes, models=CATALOG):
    index = NodeIndex(models, small=0)
    for node in nodes:
        index.put(node)
    return index


def counted(decision):
    """How many candidates were rejected for each reason, listed or not."""
    listed = Counter(reason for reasons in decision.rejections.values() for reason in reasons)
    return listed + Counter(decision.unlisted.reasons)


def assert_same_decision(found, wanted):
    assert found.ranked == wanted.ranked[: len(found.ranked)]
    assert len(found.ranked) == min(RANKED_LISTED, len(wanted.ranked)) or found.request.node is not None
    assert found.rejected == wanted.rejected[: len(found.rejected)]
    assert len(found.rejected) >= min(NAMED_NODES, len(wanted.rejected))
    for view in ("selected", "pool", "reason", "considered", "eligible", "worth_waiting"):
        assert getattr(found, view) == getattr(wanted, view), view
    if not wanted.ranked:
        assert counted(found) == counted(wanted)
    record = routing_record(Routing(None, found))
    assert record == routing_record(Routing(None, wanted))
    assert replay(record).same


def assert_same_auto_decision(found, wanted):
    assert found.ranked == wanted.ranked[: len(found.ranked)]
    assert len(found.ranked) >= min(RANKED_LISTED, len(wanted.ranked))
    for view in ("selected", "model", "reason", "considered", "worth_waiting"):
        assert getattr(found, view) == getattr(wanted, view), view
    if not wanted.ranked:
        assert list(found.rejections.items()) == list(wanted.rejections.items())[: len(found.rejections)]
    record = routing_record(Routing(None, found))
    assert record == routing_record(Routing(None, wanted))
    assert replay(record).same


def assert_same(index, nodes, request, models=CATALOG):
    for model in models:
        assert_same_decision(index.decide(request, model.model_id), decide_node(request, model, nodes))
    assert_same_auto_decision(index.decide_auto(request), decide_auto_node(request, models, nodes))


@given(registries(), CATALOGS, NODE_REQUESTS)
def test_a_fleet_is_decided_as_by_the_pure_functions(nodes, catalog, request):
    assert_same(index_of(nodes, catalog), nodes, request, catalog)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([0, 1, 9, 25, 120, 400]), st.booleans(), st.sampled_from([0.0, 0.3, 1.0]))
def test_a_fleet_of_any_size_is_decided_as_by_the_pure_functions(seed, size, spread, sick):
    rng = random.Random(seed)
    nodes = random_fleet(rng, size, spread=spread, sick=sick)
    index = index_of(nodes)
    for _ in range(4):
        assert_same(index, nodes, random_request(rng, nodes))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
@example(0)
def test_hundreds_of_equal_nodes_are_told_apart_by_their_ids(seed):
    rng = random.Random(seed)
    nodes = twins(rng, 300)
    assert_same(index_of(nodes), nodes, random_request(rng, nodes))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([5, 40, 150]))
def test_after_any_events_it_is_as_if_the_fleet_had_always_been_so(seed, size):
    rng = random.Random(seed)
    nodes = {node.node_id: node for node in random_fleet(rng, size)}
    index = index_of(nodes.values())
    for _ in range(60):
        happened = rng.random()
        known = rng.choice(list(nodes)) if nodes else None
        if known is None or happened < 0.15:
            node = random_node(rng, random_id(rng))
        elif happened < 0.25:
            index.remove(known)
            del nodes[known]
            continue
        elif happened < 0.7:
            change = rng.choice(
                [
                    {"active": rng.randint(0, 4)},
                    {"rtt_ms": rng.choice([None, 5.0, 30.0])},
                    {"reliability": rng.randint(0, 100)},
                    {"state": rng.choice(list(Liveness))},
                    {"tok_s": {rng.choice(NAMES): rng.choice([None, 10.0, 90.0])}},
                ]
            )
            node = replace(nodes[known], **change)
        else:
            node = random_node(rng, known)
        nodes[node.node_id] = node
        index.put(node)
        if rng.random() < 0.2:
            assert_same(index, list(nodes.values()), random_request(rng, list(nodes.values())))
    assert len(index) == len(nodes)
    assert_same(index, list(nodes.values()), NodeRequest())


def test_a_small_fleet_is_listed_whole():
    nodes = [a_node(f"{n:04X}") for n in range(30)]
    index = NodeIndex([NEED])
    for node in nodes:
        index.put(node)
    assert index.decide(NodeRequest(), MODEL) == decide_node(NodeRequest(), NEED, nodes)


def test_a_large_fleet_is_explained_without_a_record_for_each_node():
    nodes = [a_node(f"{n:04X}", state=Liveness.OFFLINE if n % 2 else Liveness.ONLINE) for n in range(600)]
    decision = index_of(nodes, [NEED]).decide(NodeRequest(), MODEL)
    assert (len(decision.ranked), len(decision.rejected)) == (RANKED_LISTED, NAMED_NODES)
    assert (decision.eligible, decision.considered) == (300, 600)
    assert decision.to_dict()["unlisted"] == {"ranked": 292, "rejected": 280, "reasons": {}}


def test_a_fleet_that_cannot_serve_is_explained_with_every_reason_counted():
    nodes = [a_node(f"{n:04X}", state=Liveness.OFFLINE, reported_vram_mib=4000 if n % 3 else None) for n in range(600)]
    decision = index_of(nodes, [NEED]).decide(NodeRequest(), MODEL)
    assert counted(decision) == {"offline": 600, "VRAM 4 GB < 6 GB required": 400}
    assert decision.to_dict()["unlisted"]["reasons"]["offline"] == 580


def test_a_model_that_the_index_was_not_made_for_is_refused():
    with pytest.raises(KeyError):
        index_of([], [NEED]).decide(NodeRequest(), "other")


def test_a_node_that_names_region_after_region_costs_no_memory():
    nodes = [replace(each, region="eu") for each in twins(random.Random(0), 3)]
    index = index_of(nodes)
    for number in range(1000):
        nodes[1] = replace(nodes[1], region=f"region {number}")
        index.put(nodes[1])
        for region in ("eu", f"region {number}", f"region {number - 1}"):
            request = NodeRequest(region=region, require_region=True)
            assert_same_decision(index.decide(request, "alpha"), decide_node(request, CATALOG[0], nodes))
    assert len(index._table._regions) < 100
