"""Who hears of what a node does."""

from brain_coord.fleet.health import FAULTS
from brain_coord.fleet.node import Elsewhere, Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.skips import Ask
from brain_node.contract.messages import Offer, Report
from tests.support.no_link import NoLink, NoSlots


def joined():
    registry, told = Registry(15.0), []
    node = registry.add(Node("N-1", b"key"))
    session = Session("s", NoLink(), NoSlots(), "ticket", "203.0.113.7", 0.0, 0.0)
    registry.connect(node, session, Report(), Offer(slots=4), ())
    registry.on_change.append(lambda change: told.append(change[1:3]))
    return registry, node, told


def test_the_first_job_makes_a_node_busy_and_the_last_one_frees_it():
    registry, node, told = joined()
    registry.reserve(node)
    registry.reserve(node)
    registry.release(node)
    assert told == [("ONLINE", "BUSY")]
    registry.release(node)
    assert told == [("ONLINE", "BUSY"), ("BUSY", "ONLINE")]


def test_jobs_change_nothing_about_a_node_that_drains_or_went_or_is_held_elsewhere():
    registry, node, told = joined()
    registry.set_state(node, "by hand", operator_drain=True)
    registry.reserve(node)
    assert told == [("ONLINE", "DRAINING")]
    registry.set_state(node, "by hand", operator_drain=False)
    registry.disconnect(node, node.session, "went")
    registry.held_elsewhere(node, Elsewhere("r-2", 1), "joined there")
    told.clear()
    registry.release(node)
    assert told == []


def test_faults_and_the_way_back_are_told_with_what_the_node_was_before():
    registry, node, told = joined()
    registry.reserve(node)
    told.clear()
    for _ in range(FAULTS):
        registry.record(node, "customer", "failed", "m")
    registry.record(node, "canary", "completed", "m")
    assert told == [("BUSY", "DEGRADED"), ("DEGRADED", "BUSY")]


def test_what_passed_a_node_by_before_it_became_the_operators_own_is_still_told():
    registry, node, _ = joined()
    registry.decided(False, Ask("m"), None)
    registry.belongs(node, operator=True)
    registry.decided(False, Ask("m"), None)
    registry.decided(True, Ask("m"), None)
    assert sum(registry.skip_counts(node, 0.0).values()) == 2


def test_whom_the_operator_runs_or_vouches_for_is_trusted_until_that_ends():
    registry = Registry(15.0)
    own, vouched = registry.add(Node("N-1", b"key", operator=True)), registry.add(Node("N-2", b"key"))
    registry.add(Node("N-3", b"key"))
    registry.set_state(vouched, "trusted", trusted=True)
    assert registry.lessons.trusted == {"N-1", "N-2"}
    registry.belongs(own, operator=False)
    registry.set_state(vouched, "untrusted", trusted=False)
    assert registry.lessons.trusted == set()
