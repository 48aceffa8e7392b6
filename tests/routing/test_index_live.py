"""The live index follows a real registry: after any events its decisions are those of the nodes as they are."""

import copy
import dataclasses
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.fleet.node import Elsewhere, Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.routable import RoutableNodes
from brain_coord.fleet.snapshot import node_state
from brain_coord.fleet.watched import Watched, WatchedDict
from brain_coord.measure.rtt import RttEstimator
from brain_coord.measure.window import MedianWindow
from brain_coord.routing import decide_auto_node, decide_node
from brain_coord.routing.index import NodeIndex
from brain_coord.routing.inputs import NodeRequest
from brain_coord.routing.vocabulary import Liveness
from brain_coord.store.records import Benchmark
from brain_node.contract.messages import Heartbeat, ModelOffer, Offer, Refusal, Report
from tests.routing.test_index import assert_same_auto_decision, assert_same_decision
from tests.support.fleets import CATALOG, NAMES, random_id, random_request
from tests.support.no_link import NoSlots


def a_session(rng) -> Session:
    return Session(f"{rng.random()}", link=None, slots=NoSlots(), ticket=f"{rng.random()}", address="", joined_at=0, last_heard=0)  # fmt: skip


def an_offer(rng) -> Offer:
    models = tuple(ModelOffer(id=name, loaded=rng.random() < 0.8) for name in rng.sample(NAMES, rng.randint(0, 3)))
    return Offer(models=models, slots=rng.choice([0, 1, 4]), region=rng.choice([None, "eu"]), ask_usd_per_1m=rng.choice([None, 0.5]))  # fmt: skip


def a_report(rng) -> Report:
    return Report(engine=rng.choice([None, None, None, "x"]), vram_mib=rng.choice([None, 8188, 22919, 24564]))


def a_benchmark(rng, node, model) -> Benchmark:
    return Benchmark(
        node_id=node.node_id,
        model=model,
        decode_tok_s=rng.choice([10.0, 50.0]),
        first_output_ms=5.0,
        compute_class="PRO",
        fingerprint=node.reported.fingerprint,
        measured_s=time.time(),
    )


def happens(rng, registry) -> None:
    """One thing that can happen to a fleet, by the ways in which the coordinator lets it happen."""
    node = rng.choice(list(registry.nodes.values())) if registry.nodes and rng.random() < 0.93 else None
    if node is None:
        registry.add(Node(random_id(rng), b"", operator=rng.random() < 0.3))
        return
    session, model = node.session, rng.choice(NAMES)
    events = [
        lambda: registry.connect(node, a_session(rng), a_report(rng), an_offer(rng), ()),
        lambda: registry.connect(node, a_session(rng), a_report(rng), an_offer(rng), ()),
        lambda: registry.benchmarked(node, a_benchmark(rng, node, model)),
        lambda: registry.benchmarked(node, a_benchmark(rng, node, model)),
        lambda: registry.set_state(node, "test", operator_drain=rng.random() < 0.3),
        lambda: registry.belongs(node, operator=rng.random() < 0.3),
        lambda: setattr(node, "reliability", rng.randint(0, 100)),
        lambda: setattr(node, "waiting", rng.randint(0, 3)),
        lambda: node.measured.rtt.pong(node.measured.rtt.ping(rng.getrandbits(40), 0.0), rng.choice([0.01, 0.05])),
        lambda: registry.record(node, "customer", rng.choice(["completed", "failed", "failed"]), model),
        lambda: node.measured.decode_tok_s.setdefault(model, MedianWindow()).add(20.0, 0.0),
        lambda: registry.lessons.expire(node, 1e9),
        lambda: setattr(node, "slots_limit", rng.choice([1, 2, 16])),
        lambda: setattr(node, "banned", rng.choice([None, None, "test"])),
    ]
    if session is None:
        events.append(lambda: registry.held_elsewhere(node, Elsewhere("b", 1, rng.randint(0, 2)), "test"))
    if (where := node.elsewhere) is not None:
        events += [
            lambda: registry.runs_elsewhere(node, where, others=rng.randint(0, 2), own=rng.randint(0, 2)),
            lambda: registry.held_elsewhere(node, None, "test"),
        ]
    if session is not None:
        refused = (Refusal(model=model, reason="no"),) if rng.random() < 0.3 else ()
        events += [
            lambda: registry.disconnect(node, session, "gone"),
            lambda: registry.offer(node, an_offer(rng), a_report(rng), refused),
            lambda: registry.heartbeat(node, Heartbeat(active=0, draining=rng.random() < 0.3)),
            lambda: setattr(session, "closing", rng.random() < 0.3),
            lambda: registry.reserve(node),
            lambda: registry.reserve(node),
        ]
    if node.active:
        events.append(lambda: registry.release(node))
    rng.choice(events)()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([6, 60]))
def test_after_any_events_decisions_are_those_of_the_nodes_as_they_are(seed, joined):
    rng = random.Random(seed)
    registry = Registry(15.0, needs={model.model_id: model for model in CATALOG})
    for _ in range(joined // 2):
        registry.add(Node(random_id(rng), b""))
    routable = RoutableNodes(registry, CATALOG)
    for index in routable._indexes.values():
        index._small = 0
    for _ in range(joined // 2):
        registry.add(Node(random_id(rng), b""))
    for _ in range(120):
        happens(rng, registry)
        if rng.random() < 0.9:
            continue
        for operator in (False, True):
            held = {node.node_id for node in registry.nodes.values() if rng.random() < 0.1}
            nodes = [
                dataclasses.replace(state, state=Liveness.DEGRADED)
                if state.node_id in held and state.state in (Liveness.ONLINE, Liveness.BUSY)
                else state
                for state in (node_state(node) for node in registry.nodes.values() if node.operator is operator)
            ]
            request, model = random_request(rng, nodes), rng.choice(CATALOG)
            index = routable.index(operator, held)
            assert sorted(index.states(), key=lambda state: state.node_id) == sorted(
                nodes, key=lambda state: state.node_id
            )
            assert_same_decision(index.decide(request, model.model_id), decide_node(request, model, nodes))
            assert_same_auto_decision(index.decide_auto(request), decide_auto_node(request, CATALOG, nodes))


def watched_parts(record, path="node"):
    yield path, record
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Watched) and dataclasses.is_dataclass(value):
            yield from watched_parts(value, f"{path}.{field.name}")


def test_whatever_is_assigned_anywhere_in_a_node_marks_it():
    """Also what is added later: nobody has to remember the index."""
    registry = Registry(15.0)
    node = registry.add(Node("N-1", b""))
    registry.connect(node, a_session(random.Random(0)), Report(), Offer(), ())
    marked = []
    registry.on_touch.append(marked.append)
    parts = list(watched_parts(node))
    assert {path for path, _ in parts} >= {"node.session", "node.reported", "node.measured", "node.health"}
    for path, record in parts:
        for field in dataclasses.fields(record):
            marked.clear()
            needed = field.name in ("rtt", "changes")  # by what hears of it
            setattr(record, field.name, copy.copy(getattr(record, field.name)) if needed else object())
            assert bool(marked) is (field.name not in record.unwatched), f"{path}.{field.name}"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", 2),
        lambda d: d.__delitem__("a"),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.setdefault("b", 1),
        lambda d: d.update(b=1),
        lambda d: d.__ior__({"b": 1}),
    ],
)
def test_a_dictionary_tells_of_every_change(change):
    told = []
    items = WatchedDict({"a": 1}, lambda: told.append(True))
    wanted = {"a": 1}
    change(items)
    change(wanted)
    assert told
    assert items == wanted
    assert type(copy.deepcopy(items)) is dict


def test_reading_a_node_marks_nothing():
    registry = Registry(15.0)
    node = registry.add(Node("N-1", b""))
    marked = []
    registry.on_touch.append(marked.append)
    node_state(node)
    node.public_view()
    assert not marked


def test_a_new_estimator_is_watched_like_the_first():
    registry = Registry(15.0)
    node = registry.add(Node("N-1", b""))
    node.measured.rtt = RttEstimator()
    marked = []
    registry.on_touch.append(marked.append)
    node.measured.rtt.pong(node.measured.rtt.ping(7, 0.0), 0.01)
    assert marked == [node]


def test_what_nobody_changed_is_not_derived_again(monkeypatch):
    registry = Registry(15.0)
    for number in range(50):
        registry.add(Node(f"N-{number:016X}", b""))
    routable = RoutableNodes(registry, CATALOG)
    routable.index(False).decide(NodeRequest(), "alpha")
    put = []
    monkeypatch.setattr(NodeIndex, "put", lambda self, state: put.append(state.node_id))
    registry.nodes["N-0000000000000007"].reliability = 3
    registry.nodes["N-0000000000000007"].waiting = 3
    routable.index(False).decide(NodeRequest(), "alpha")
    routable.index(False).decide(NodeRequest(), "alpha")
    assert put == ["N-0000000000000007"]


def test_jobs_that_come_and_go_mark_a_node_and_leave_everything_else_about_it_as_it_is():
    registry = Registry(15.0)
    node = registry.add(Node("N-1", b""))
    registry.connect(node, a_session(random.Random(0)), Report(), Offer(slots=4), ())
    marked, changes = [], node.changes
    registry.on_touch.append(marked.append)
    registry.reserve(node)
    registry.release(node)
    assert (len(marked), node.changes) == (2, changes)
    node.reliability = 3
    assert (len(marked), node.changes) == (3, changes + 1)


def test_a_figure_that_was_worked_out_anew_and_came_out_the_same_marks_nothing():
    registry = Registry(15.0)
    node = registry.add(Node("N-1", b""))
    node.measured.credited["alpha"], node.measured.best_tok_s = 12.345, 67.89
    marked = []
    registry.on_touch.append(marked.append)
    node.measured.credited["alpha"], node.measured.best_tok_s = float("12.345"), float("67.89")
    assert marked == []
    node.measured.credited["alpha"] = 12.346
    assert marked == [node]
