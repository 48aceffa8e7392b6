"""Nothing that a node merely says raises its score: claims can only exclude."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.scores import explained
from brain_coord.fleet.snapshot import node_state
from brain_coord.fleet.standing import Standing
from brain_coord.routing.inputs import NodeRequest
from brain_coord.routing.node_router import decide_node
from brain_coord.store.records import Benchmark, Outcome
from brain_node.contract.messages import Heartbeat, Offer, Report, decode
from tests.support.no_link import NoLink, NoSlots
from tests.support.registries import MODEL, NEED

WALL = 1_800_000_000.0


def joined(report=None, **offer):
    registry = Registry(15.0, needs={MODEL: NEED})
    node = registry.add(Node("N-" + "A" * 16, b"key"))
    members = {"models": ({"id": MODEL, "loaded": True},), "slots": 4, **offer}
    session = Session("s", NoLink(), NoSlots(), "ticket", "203.0.113.7", 0.0, 0.0)
    registry.connect(node, session, report or Report(), Offer.model_validate(members), ())
    registry.benchmarked(node, Benchmark(node.node_id, MODEL, 50.0, 90.0, "PRO", "f", WALL))
    return registry, node


def total(node):
    decision = decide_node(NodeRequest(), NEED, [node_state(node)])
    return decision.ranked[0].total if decision.ranked else 0.0


NUMBERS = st.none() | st.integers(0, 10**12) | st.floats() | st.text(max_size=5) | st.booleans()
GPU = st.fixed_dictionaries({}, optional={"name": st.text(max_size=9), "total_bytes": NUMBERS, "free_bytes": NUMBERS})
REPORTS = st.fixed_dictionaries(
    {},
    optional={
        "vram_mib": NUMBERS,
        "ram_bytes": NUMBERS,
        "cpu_count": NUMBERS,
        "engine": st.text(max_size=9),
        "engine_version": st.text(max_size=9),
        "driver": st.text(max_size=9),
        "gpus": st.lists(GPU, max_size=3),
    },
)


def report_of(members):
    refused = []
    return Report.model_validate(members, context=refused)


@given(REPORTS)
def test_no_report_of_hardware_or_software_raises_a_node(members):
    _, honest = joined()
    _, boaster = joined(report_of(members))
    assert total(boaster) <= total(honest)


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"telemetry": st.lists(GPU, max_size=2), "active": NUMBERS}), max_size=4
    )
)
def test_no_heartbeat_raises_a_node(beats):
    registry, node = joined()
    before = total(node)
    for members in beats:
        registry.heartbeat(node, Heartbeat.model_validate({"draining": False, **members}, context=[]))
        assert total(node) <= before


def test_a_model_is_loaded_when_it_answered_on_our_clock_and_not_when_the_node_says_so():
    registry, node = joined()
    other = "mistralai/mistral-7b-instruct-v0.3"
    offer = Offer.model_validate({"models": ({"id": MODEL, "loaded": True}, {"id": other, "loaded": True}), "slots": 4})
    registry.offer(node, offer, None, ())
    assert node_state(node).loaded == {MODEL}


def test_claimed_memory_can_exclude_and_never_promote():
    _, little = joined(Report(vram_mib=1000))
    _, much = joined(Report(vram_mib=10**9))
    _, silent = joined()
    assert total(little) == 0.0
    assert total(much) == total(silent)


def test_a_new_name_or_region_or_version_resets_no_score():
    standing = Standing.of([Outcome("N-1", "customer", "failed", WALL)] * 20, [])
    before = explained(standing, WALL)["score"]
    registry, node = joined()
    node.reliability = before
    registry.disconnect(node, node.session, "left")
    session = Session("t", NoLink(), NoSlots(), "other", "198.51.100.1", 1.0, 1.0)
    registry.connect(node, session, Report(os="Other"), replace_offer(node.reported.offer, region="moon"), ())
    assert node.reliability == before
    assert node_state(node).reliability == before


def replace_offer(offer, **members):
    return offer.model_copy(update=members)


def test_values_that_are_no_numbers_are_dropped_and_named():
    dropped = []
    beat = decode(
        '{"type":"heartbeat","active":-1,"telemetry":[{"total_bytes":1e308,"free_bytes":"12","power_w":true}]}', dropped
    )
    assert sorted(dropped) == ["active", "free_bytes", "power_w", "total_bytes"]
    assert beat.active is None
    assert replace(joined()[1].state_view(0.0)).state == "ONLINE"
