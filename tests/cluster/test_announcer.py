"""What a coordinator tells the others of its nodes: what changed, once, and all of it to whoever missed some."""

import pytest

from brain_coord.cluster.announcer import FACTS_S, FLUSH_S, NEWS_PER_S, NODES_AT_ONCE, Announcer
from brain_coord.cluster.view import SharedView
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_node.contract.messages import Offer, Report
from tests.support.no_link import NoLink, NoSlots
from tests.support.registries import MODEL, NEED

NOW = 1000.0
PIECE = round(NEWS_PER_S * FLUSH_S)


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


async def test_nodes_that_came_together_are_told_in_messages_of_bounded_size(here):
    for number in range(NODES_AT_ONCE + 1):
        here.join(number)
    assert [len(message["facts"]) for message in here.says.gathered(NOW)] == [NODES_AT_ONCE, 1]


async def test_whoever_missed_something_is_told_all_of_it_no_faster_than_it_can_be_taken_in(here):
    for number in range(2 * PIECE + 1):
        here.join(number)
    here.says.gathered(NOW)
    here.says.tell_all()
    here.says.ask("b")
    first, ask = here.says.gathered(NOW)
    assert ask["of"] == ["b"]
    assert here.says.beat("http://a", leaving=False)["seq"] == first["seq"], "a beat counts what was told already"
    assert here.says.wake.is_set()
    (second,), (last,) = here.says.gathered(NOW), here.says.gathered(NOW)
    assert [len(each["facts"]) for each in (first, second, last)] == [PIECE, PIECE, 1]
    assert [each["first"] for each in (first, second, last)] == [True, False, False]
    assert [each["last"] for each in (first, second, last)] == [False, False, True]
    assert not here.says.wake.is_set()


async def test_whoever_asks_meanwhile_is_told_all_of_it_from_the_beginning(here):
    for number in range(PIECE + 1):
        here.join(number)
    here.says.gathered(NOW)
    here.says.tell_all()
    here.says.gathered(NOW)
    here.says.tell_all()
    (again,), (last,) = here.says.gathered(NOW), here.says.gathered(NOW)
    assert (again["first"], again["last"]) == (True, False)
    assert len({node_id for each in (again, last) for node_id, _, _ in each["facts"]}) == PIECE + 1


async def test_who_comes_and_goes_while_all_of_it_is_told_is_known_rightly_in_the_end(here):
    nodes = [here.join(number) for number in range(2 * PIECE)]
    other = SharedView("b", "run", 10.0)
    other.hear(here.says.beat("http://a", leaving=False), NOW)
    here.says.tell_all()
    for _ in range(4):
        left = nodes.pop(0)
        here.registry.disconnect(left, left.session, "gone")
        nodes.append(here.join(len(here.registry.nodes)))
        for message in here.says.gathered(NOW):
            other.hear(message, NOW)
    held = {node.node_id for node in here.registry if (claim := other.holder(node.node_id)) and claim.replica == "a"}
    assert held == {node.node_id for node in nodes}


async def test_a_link_that_ended_and_began_anew_before_anybody_was_told_is_not_told_as_gone(here):
    node = here.join()
    here.says.gathered(NOW)
    here.registry.disconnect(node, node.session, "gone")
    here.says.claim_marked(NOW)  # somebody else was heard
    here.join(session="t")
    (told,) = here.says.gathered(NOW)
    assert ([node_id for node_id, _, _ in told["facts"]], told["gone"]) == ([node.node_id], [])


async def test_a_session_that_just_began_is_claimed_before_others_are_heard(here):
    node = here.join()
    assert node.node_id not in here.view.own
    here.says.claim_marked(NOW)
    assert node.node_id in here.view.own
