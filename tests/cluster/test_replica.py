"""One member of a cluster by itself: what it does about the nodes that are linked to it. Time is an argument."""

from time import monotonic
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, TargetFault
from brain_coord.cluster.facts import facts_of
from brain_coord.cluster.hop_client import ALIVE, ALIVE_PATH, JOB_PATH
from brain_coord.cluster.replica import MOVE_S, Replica
from brain_coord.cluster.secret import ClusterSecret
from brain_coord.cluster.settings import ClusterSettings
from brain_coord.cluster.spread import LINKED_S, SETTLED_S
from brain_coord.cluster.view import PROTOCOL
from brain_coord.fleet.node import Elsewhere, Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.routable import RoutableNodes
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.fleet.skips import OUTRANKED, Ask
from brain_coord.gateway.bodies import BodyBudget
from brain_coord.gateway.limits import KeyMeters
from brain_coord.routing.vocabulary import ResourceClass
from brain_coord.store.records import Benchmark
from brain_node.contract.limits import LINK_AGAIN
from brain_node.contract.messages import Offer, Report
from tests.support.eventually import eventually
from tests.support.no_link import NoSlots
from tests.support.registries import MODEL, NEED


class Link:
    """Remembers how it was closed."""

    def __init__(self):
        self.closed = None

    async def send(self, message): ...

    async def close(self, code, reason):
        self.closed = code


class Member:
    """The replica `a`, together with `b`, which holds no nodes."""

    def __init__(self):
        self.registry = Registry(15.0, needs={MODEL: NEED})
        settings = ClusterSettings("redis://nowhere", "a", "http://a", ClusterSecret("s" * 40))
        gate = SimpleNamespace(ticket_prefix="", stray=None, draining=False, slot=None)
        scores = ScoreKeeper(None, self.registry)
        self.replica = Replica(
            settings, "a", self.registry, scores, KeyMeters(), gate, 1000, BodyBudget(1000), self._sync
        )
        self.replica.bus.connected = True
        self.hear("a", self.replica.run_id)
        self.hear("b", "1")

    async def _sync(self, node_id): ...

    def hear(self, name, run, address="http://127.0.0.1:1"):
        beat = {"type": "beat", "from": name, "run": run, "seq": 0, "address": address}
        self.replica._hear({**beat, "leaving": False, "protocol": PROTOCOL, "clock": monotonic(), "wall_s": 0.0})

    def join(self, number):
        node = self.registry.add(Node(f"N-{number:016X}", b"key"))
        session = Session(f"s{number}", Link(), NoSlots(), f"ticket{number}", "203.0.113.7", 0.0, 0.0)
        offer = Offer.model_validate({"models": ({"id": MODEL, "loaded": True},), "slots": 4})
        self.registry.connect(node, session, Report(), offer, ())
        return node


@pytest.fixture
async def member():
    member = Member()
    yield member
    await member.replica.close()


async def spread(member):
    """Two rounds, so far apart that what the first one sees has settled; the links that were ended."""
    links = [node.session.link for node in member.registry]
    await member.replica.spread(LINKED_S)
    await member.replica.spread(LINKED_S + SETTLED_S)
    return [link for link in links if link.closed is not None]


async def test_a_replica_with_more_than_its_share_asks_a_node_to_link_again(member):
    nodes = [member.join(number) for number in range(20)]
    (ended,) = await spread(member)
    assert ended.closed == LINK_AGAIN
    (asked,) = [node for node in nodes if node.session.closing]
    assert asked.state == "DRAINING", "and gives it no job meanwhile"
    assert member.replica.health()["nodes_moved"] == 1


async def test_a_node_with_a_running_job_is_not_asked(member):
    nodes = [member.join(number) for number in range(20)]
    for node in nodes[:-1]:
        assert member.registry.reserve(node)
    assert await spread(member) == [nodes[-1].session.link]


async def test_nobody_is_asked_while_redis_is_away_or_the_replica_leaves(member):
    for number in range(20):
        member.join(number)
    member.replica.bus.connected = False
    assert await spread(member) == []
    member.replica.bus.connected, member.replica.leaving = True, True
    assert await spread(member) == []


async def test_a_node_on_its_way_from_one_replica_to_the_next_is_not_counted_as_away(member):
    node = member.registry.add(Node("N-1", b"key"))
    member.registry.held_elsewhere(node, Elsewhere("b", 1), "linked at b")
    assert not member.replica._counts(node), "its holder does"
    member.registry.held_elsewhere(node, None, "its link closed")
    assert member.replica.leads()
    assert not member.replica._counts(node)
    node.left_at = monotonic() - MOVE_S - 1
    assert member.replica._counts(node)


def tells_of(member, *node_ids):
    """What `b` says of all of its nodes."""
    facts = [(node_id, number, facts_of(member.join(number))) for number, node_id in enumerate(node_ids, 1)]
    return {"type": "nodes", "from": "b", "run": "1", "seq": 1, "facts": facts, "first": True, "last": True}


async def test_a_node_at_a_replica_that_leaves_or_is_out_of_reach_is_not_counted_as_away(member):
    member.replica._hear(tells_of(member, "N-2"))
    node = member.registry.get("N-2")
    assert node.elsewhere.replica == "b"
    member.replica.hops.unreachable("b", "as this test says")
    assert node.state == "OFFLINE"
    node.left_at = monotonic() - MOVE_S - 1
    assert member.replica.leads()
    assert not member.replica._counts(node)
    member.replica._hear({"type": "nodes", "from": "b", "run": "1", "seq": 2, "gone": ["N-2"]})
    assert not member.replica._counts(node), "it has only just left"
    node.left_at -= MOVE_S + 1
    assert member.replica._counts(node)


@pytest.mark.parametrize("status", [200, 302, 404, 502, 503])
async def test_a_replica_whose_address_leads_elsewhere_is_asked_once_and_not_for_each_of_its_nodes(member, status):
    wrong = True
    asked = []

    async def answer(request):
        asked.append(request.path)
        return web.Response(status=status, text="welcome to nowhere") if wrong else web.Response(body=ALIVE)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server:
        member.hear("b", "1", str(server.make_url("")).rstrip("/"))
        member.replica._hear(tells_of(member, "N-1", "N-2"))
        nodes = [member.registry.get("N-1"), member.registry.get("N-2")]
        targets = [
            member.replica.target(node, MODEL, ResourceClass.NATIVE_NETWORK, ClassSamples(), TargetHealth(node.node_id))
            for node in nodes
        ]
        for target in targets:
            with pytest.raises(TargetFault):
                await target.start(JobSpec("j", MODEL, "/v1/chat/completions", b"{}", 10.0))
        assert asked == [JOB_PATH]
        await eventually(lambda: ALIVE_PATH in asked)
        assert [node.state for node in nodes] == ["OFFLINE", "OFFLINE"], "who answers there is still somebody else"
        wrong = False
        await eventually(lambda: nodes[0].state == "ONLINE" and nodes[1].state == "ONLINE")
        assert set(asked[1:]) == {ALIVE_PATH}


async def test_a_job_that_runs_on_while_its_replica_is_out_of_sight_still_has_its_slot_afterwards(member):
    member.replica._hear(tells_of(member, "N-1"))
    node = member.registry.get("N-1")
    link = node.elsewhere  # as whoever runs the job has it
    member.registry.runs_elsewhere(node, link, others=0, own=1)
    member.replica.hops.unreachable("b", "as this test says")
    assert node.elsewhere is None
    member.replica._follow(member.replica.view.reached("b", reachable=True))
    assert node.running == 1
    member.replica._follow(member.replica.view.expire(monotonic() + 60))
    member.hear("b", "1")
    member.replica._hear(tells_of(member, "N-1"))
    assert node.running == 1, "and after Redis was away"


async def test_requests_that_pass_by_a_node_elsewhere_are_counted_by_what_kept_it_from_them_at_the_time(member):
    told = member.join(1)
    told.measured.benchmarks = {MODEL: Benchmark("N-1", MODEL, 50.0, 80.0, "PRO", "f", 1.0)}
    told.slots_limit = 4
    message = {**tells_of(member), "facts": [("N-1", 1, facts_of(told))]}
    member.replica._hear(message)
    registry, node = member.registry, member.registry.get("N-1")
    routable = RoutableNodes(registry, [NEED])

    def asked_at(running):
        assert routable.index(operator=False).state("N-1").active == node.running == running
        registry.decided(False, Ask(MODEL), None)

    def load(number, running):
        load = [("N-1", running, {})]
        member.replica._hear({"type": "nodes", "from": "b", "run": "1", "seq": number, "load": load})
        asked_at(running)

    load(2, 3)
    load(3, 4)
    load(4, 3)
    registry.runs_elsewhere(node, node.elsewhere, others=3, own=1)
    asked_at(4)
    registry.runs_elsewhere(node, node.elsewhere, others=3, own=0)
    asked_at(3)
    assert registry.skip_counts(node, monotonic()) == {OUTRANKED: 3, "no free slot": 2}
