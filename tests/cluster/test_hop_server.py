"""What the holder of a node makes of what other coordinators say of it."""

from time import monotonic

import orjson
import pytest

from brain_coord.classes.node_target import NodeTarget
from brain_coord.classes.samples import ClassSamples
from brain_coord.cluster.hop_server import STOOD_STILL_S, HopServer, _Given
from brain_coord.cluster.secret import ClusterSecret, Doorkeeper
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.bodies import BodyBudget
from brain_coord.measure.lag import PERIOD_S, LoopLag
from brain_coord.routing.vocabulary import ResourceClass
from tests.support.no_link import NoSlots
from tests.support.registries import MODEL


class Holder:
    """A coordinator that holds one node, on which another one has a job; its loop ticks when it is told to."""

    def __init__(self):
        self.registry, self.told = Registry(15.0), []
        self.registry.on_event.append(lambda node, outcome: self.told.append(outcome.result))
        self.lag: LoopLag = self.registry.lessons.lag
        self.server = HopServer(
            self.registry,
            Doorkeeper(ClusterSecret("s" * 40), "b", "run"),
            {}.get,
            1000,
            BodyBudget(1000),
            lambda node: None,
        )
        self.node = self.registry.add(Node("N-1", b"key"))
        self.node.session = Session("s", None, NoSlots(), "ticket", "203.0.113.7", 0.0, 0.0)

    def given(self, since, **more):
        target = NodeTarget(self.registry, self.node, MODEL, ResourceClass.NATIVE_NETWORK, ClassSamples())
        self.server._remember("j", _Given(target, self.node, since, **more))

    def hears(self, result):
        said = {"kind": "outcome", "job": "j", "node": "N-1", "model": MODEL, "result": result}
        self.server._event(orjson.loads(orjson.dumps({**said, "empty": False, "streamed": True})))


@pytest.mark.parametrize(("stall_s", "counts"), [(0.0, True), (STOOD_STILL_S / 2, True), (8.0, False)])
@pytest.mark.parametrize("taken", ["before", "after"])
def test_a_node_is_not_blamed_for_an_answer_that_lay_at_its_coordinator_while_that_stood_still(stall_s, counts, taken):
    holder, now = Holder(), monotonic()
    holder.lag.tick(now - stall_s - PERIOD_S)
    holder.lag.tick(now)
    holder.given(now - stall_s if taken == "before" else now)
    holder.hears("timed_out")
    assert holder.told == ["timed_out"] * counts


def test_a_node_is_not_blamed_for_an_answer_that_was_lost_on_the_way_between_two_coordinators():
    holder, now = Holder(), monotonic()
    holder.given(now, ended=True)
    holder.hears("timed_out")
    assert holder.told == []
    holder.given(now, ended=True)
    holder.hears("failed")
    assert holder.told == ["failed"], "it may well have ended with an error"


def test_what_a_node_itself_did_counts_whenever_that_was():
    holder, now = Holder(), monotonic()
    holder.lag.tick(now - 8.0)
    holder.lag.tick(now)
    for result in ("failed", "completed"):
        holder.given(now - 8.0)
        holder.hears(result)
    assert holder.told == ["failed", "completed"]
