"""What a class says of itself is the same object while nothing changes, so that what was made of it still holds."""

import pytest

from brain_coord.classes.backend import Query
from brain_coord.classes.node_class import NodeClass
from brain_coord.classes.returning import RETURN_S
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.link.slot import SlotQueue
from brain_coord.routing.inputs import AUTO_MODEL, NodeRequest
from brain_coord.routing.vocabulary import ResourceClass
from brain_coord.store.records import Benchmark
from brain_node.contract.catalog import load_catalog
from brain_node.contract.messages import ModelOffer, Offer, Report

CATALOG = load_catalog()
MODEL = "qwen/qwen2.5-1.5b-instruct"
PATH = "/v1/chat/completions"


def offer(**members) -> Offer:
    return Offer(models=(ModelOffer(id=MODEL, loaded=True),), slots=4, **members)


@pytest.fixture
def registry() -> Registry:
    return Registry(15.0)


@pytest.fixture
def node(registry) -> Node:
    node = registry.add(Node("N-" + "1" * 16, b""))
    node.measured.benchmarks[MODEL] = Benchmark(node.node_id, MODEL, 50.0, 10.0, None, "", 0.0)
    session = Session("1", None, SlotQueue(lambda _: None), "1", "", 0.0, 0.0)
    registry.connect(node, session, Report(), offer(ask_usd_per_1m=2.0), ())
    return node


@pytest.fixture
def native(registry) -> NodeClass:
    return NodeClass(ResourceClass.NATIVE_NETWORK, registry, CATALOG, operator=False)


@pytest.mark.parametrize("model", [MODEL, AUTO_MODEL])
def test_a_fleet_that_is_back_where_it_was_gives_the_same_answer(registry, node, native, model):
    query = Query(model, PATH, NodeRequest())
    idle = native.prospect(query)
    registry.reserve(node)
    busy = native.prospect(query)
    registry.release(node)
    assert native.prospect(query).node_decision is idle.node_decision is not busy.node_decision
    assert native.prospect(query).state is idle.state is busy.state


def test_the_state_of_a_class_moves_with_its_price_its_samples_and_what_it_can_take(registry, node, native):
    query = Query(MODEL, PATH, NodeRequest())
    assert native.prospect(query, 500_000).state.cost_usd == 1.0
    registry.offer(node, offer(ask_usd_per_1m=4.0), None, ())
    assert native.prospect(query, 500_000).state.cost_usd == 2.0
    native.samples.completed(120.0)
    assert native.prospect(query).state.latency_ms == 120.0
    for _ in range(4):
        registry.reserve(node)
    full = native.prospect(query).state
    assert (full.supported, full.available, full.cost_usd) == (True, False, None)
    registry.release(node)
    assert native.prospect(query).state.available


def test_a_class_without_nodes_has_one_answer_until_its_samples_say_more(registry, node):
    own = NodeClass(ResourceClass.CLOUD_GPU, registry, CATALOG, operator=True)
    query = Query(MODEL, PATH, NodeRequest())
    nobody = own.prospect(query)
    assert not nobody.state.supported
    assert own.prospect(query) is nobody
    own.samples.completed(1.0)
    assert own.prospect(query).state.latency_ms == 1.0
    registry.belongs(node, operator=True)
    assert own.prospect(query).state.available


@pytest.mark.parametrize("just_started", [True, False])
def test_a_node_that_went_is_waited_for_and_one_that_was_banned_is_not(registry, node, native, just_started):
    query = Query(MODEL, PATH, NodeRequest(), wait_s=10.0)
    native._returning.started -= 0.0 if just_started else 1000.0
    registry.disconnect(node, node.session, "went")
    assert native.prospect(query).wait_s == RETURN_S
    registry.set_state(node, "banned", banned="for lies")
    assert native.prospect(query).wait_s == 0.0


def test_how_long_an_answer_may_be_makes_no_other_state_where_nothing_is_charged_for_it(registry, node, native):
    query = Query(MODEL, PATH, NodeRequest())
    registry.offer(node, offer(), None, ())
    assert native.prospect(query, 1).state is native.prospect(query, 2).state
