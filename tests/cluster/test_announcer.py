"""What a coordinator tells the others of its nodes: what changed, once, and all of it to whoever missed some."""

import pytest

from brain_coord.cluster.announcer import FACTS_S, NODES_AT_ONCE, Announcer
from brain_coord.cluster.view import SharedView
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_node.contract.messages import Offer, Report
from tests.support.no_link import NoLink, NoSlots
from tests.support.registries import MODEL, NEED

NOW = 1000.0


class Here:
    """A coordinator with nodes linked to it, and what it says."""

    def __init__(self):
        self.registry = Registry(15.0, needs={MODEL: NEED})
        self.view = SharedView("a", "run", 10.0)
        self.given = {}
        self.says = Announcer(self.view, self.registry, self.given, "a", "run")
        self.registry.on_touch.append(self.says.mark)

    def join(self, number=0, session="s"):
        node = self.registry.add(Node(f"N-{number:016X}", b"key"))
        linked = Session(f"{session}{number}", NoLink(), NoSlots(), f"ticket{session}{number}", "203.0.113.7", 0.0, 0.0)
        offer = Offer.model_validate({"models": ({"id": MODEL, "loaded": True},), "slots": 4})
        self.registry.connect(node, linked, Report(), offer, ())
        return node


@pytest.fixture
async def here():
    return Here()


async def test_a_node_that_came_is_told_whole_at_once_and_then_only_what_changed(here):
    node = here.join()
    assert here.says.wake.is_set()
    (first,) = here.says.gathered(NOW)
    assert [(node_id, facts["operator"]) for node_id, _, facts in first["facts"]] == [(node.node_id, False)]
    assert first["load"] == [(node.node_id, 0, {})]
    assert not here.says.wake.is_set()

    here.registry.reserve(node)
    here.given[node.node_id] = {"b": 1}
    (second,) = here.says.gathered(NOW)
    assert (second["facts"], second["load"]) == ([], [(node.node_id, 1, {"b": 1})])
    assert second["seq"] == first["seq"] + 1
    assert here.says.wake.is_set(), "whether more of it changed is looked at when its turn comes"
    assert here.says.gathered(NOW + FACTS_S) == [], "nothing but its load had changed"
    assert not here.says.wake.is_set()


async def test_a_link_that_ended_is_told_once_and_a_newer_one_has_a_higher_epoch(here):
    node = here.join()
    ((_, epoch, _),) = here.says.gathered(NOW)[0]["facts"]
    here.registry.disconnect(node, node.session, "gone")
    (left,) = here.says.gathered(NOW)
    assert (left["gone"], left["facts"]) == ([node.node_id], [])
    assert node.node_id not in here.view.own
    assert here.says.gathered(NOW) == []
    here.join(session="t")
    ((_, later, _),) = here.says.gathered(NOW)[0]["facts"]
    assert later > epoch


async def test_whoever_missed_something_is_told_all_of_it_in_messages_of_bounded_size(here):
    for number in range(NODES_AT_ONCE + 1):
        here.join(number)
    here.says.gathered(NOW)
    here.says.tell_all()
    here.says.ask("b")
    first, last, ask = here.says.gathered(NOW)
    assert (len(first["facts"]), len(last["facts"])) == (NODES_AT_ONCE, 1)
    assert first["first"]
    assert last["last"]
    assert ask["of"] == ["b"]
    assert here.says.beat("http://a", leaving=False)["seq"] == last["seq"], "a beat tells which was the last"


async def test_a_session_that_just_began_is_claimed_before_others_are_heard(here):
    node = here.join()
    assert node.node_id not in here.view.own
    here.says.claim_marked(NOW)
    assert node.node_id in here.view.own
