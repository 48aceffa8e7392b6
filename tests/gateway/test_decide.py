"""What a refusal says when capacity is not the only thing in the way: the true reason, also when the request is it."""

import asyncio
import json
from time import monotonic
from types import SimpleNamespace

import httpx
import pytest

from brain_coord.classes.cloud import CloudClass
from brain_coord.classes.node_class import NodeClass
from brain_coord.classes.prices import Prices
from brain_coord.classes.upstream import Offer as UpstreamOffer
from brain_coord.classes.upstream import UpstreamSpec
from brain_coord.classes.upstream_class import UpstreamClass
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decider, Decision
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.journal import Record
from brain_coord.gateway.limits import DEFAULT_PLANS
from brain_coord.gateway.picker import TargetPicker
from brain_coord.gateway.result import Result
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.link.slot import SlotQueue
from brain_coord.routing import Routing, replay, routing_record
from brain_coord.routing.inputs import ClassState
from brain_coord.routing.vocabulary import CommunityFirst, Plan, ResourceClass
from brain_coord.store.records import Benchmark
from brain_node.contract.catalog import load_catalog
from brain_node.contract.messages import ModelOffer, Offer, Report
from tests.support.coordinator import brain_coord
from tests.support.eventually import eventually
from tests.support.fake_targets import FakeClass, FakeTarget, request
from tests.support.in_process import coordinator_inside

CATALOG = load_catalog()
MODEL = "qwen/qwen2.5-1.5b-instruct"
NOBODY = "0 of 0 nodes can serve brain/auto right now (no node has joined)"
NATIVE_BARRED = "NATIVE_NETWORK: privacy STANDARD does not allow it, PUBLIC would"


@pytest.fixture
def registry() -> Registry:
    return Registry(15.0)


def join(
    registry: Registry,
    number: int = 1,
    *,
    operator: bool = False,
    online: bool = True,
    ask: float | None = None,
) -> Node:
    node = registry.add(Node(node_id=f"N-{number:016X}", public_key=b"", operator=operator))
    node.measured.benchmarks[MODEL] = Benchmark(node.node_id, MODEL, 50.0, 10.0, None, "", 0.0)
    if online:
        session = Session(str(number), None, SlotQueue(lambda _: None), str(number), "", 0.0, 0.0)
        registry.connect(
            node, session, Report(), Offer(models=(ModelOffer(id=MODEL, loaded=True),), slots=4, ask_usd_per_1m=ask), ()
        )
    return node


def shortage(registry: Registry, model: str = "brain/auto", others: list[FakeClass] | None = None, **wishes) -> str:
    return decision(registry, model, others, **wishes).shortage()


def decision(
    registry: Registry, model: str = "brain/auto", others: list[FakeClass] | None = None, **wishes
) -> Decision:
    native = NodeClass(ResourceClass.NATIVE_NETWORK, registry, CATALOG, operator=False)
    own = NodeClass(ResourceClass.CLOUD_GPU, registry, CATALOG, operator=True)
    decider = Decider([native, own, *(others or [])], CATALOG, CommunityFirst.FREE)
    return decider.decide(request(model=model, **wishes), Caller("k", Plan.FREE))


def test_nodes_that_privacy_keeps_out_are_not_called_absent(registry):
    join(registry)
    assert shortage(registry) == f"CLOUD_GPU: no node of the operator's own has joined; {NATIVE_BARRED}"


def test_without_any_node_the_sentence_says_so_and_what_would_keep_one_out(registry):
    assert shortage(registry) == f"{NOBODY}; {NATIVE_BARRED}"
    assert shortage(registry, privacy="PUBLIC") == NOBODY


def test_an_own_node_that_cannot_work_is_named_before_the_class_that_may_not(registry):
    join(registry, 1)
    join(registry, 2, operator=True, online=False)
    why = "N-0000…: offline, does not serve any real model of the catalog"
    assert shortage(registry) == f"0 of 1 nodes can serve brain/auto right now ({why}); {NATIVE_BARRED}"


def test_a_class_over_the_clients_limit_is_named_with_the_limit(registry):
    dear = ClassState(ResourceClass.EXTERNAL_MODEL, supported=True, available=True, cost_usd=2.0)
    far = FakeClass(ResourceClass.EXTERNAL_MODEL, lambda: dear, [], 0.0)
    said = shortage(registry, privacy="PUBLIC", max_cost_usd=0.5, others=[far])
    assert said == f"{NOBODY}; EXTERNAL_MODEL: costs more than max_cost_usd"


def test_to_come_back_helps_where_capacity_may_come_and_not_where_the_request_is_in_its_own_way(registry):
    dear = ClassState(ResourceClass.EXTERNAL_MODEL, supported=True, available=True, cost_usd=2.0)
    far = FakeClass(ResourceClass.EXTERNAL_MODEL, lambda: dear, [], 0.0)
    assert decision(registry, privacy="PUBLIC").may_change  # a node may join
    node = join(registry)
    assert decision(registry, privacy="PUBLIC").may_change
    assert not decision(registry).may_change
    assert not decision(registry, privacy="PRIVATE", max_cost_usd=0.5, others=[far]).may_change
    join(registry, 2, operator=True, online=False)
    assert decision(registry).may_change
    assert not decision(registry, model=MODEL, privacy="PUBLIC", node=node.node_id, mode="BROWSER_ONLY").may_change


OTHER = "qwen/qwen3-0.6b"
LACKS_OTHER = f"does not serve {OTHER}"


def test_an_own_node_that_does_not_serve_the_model_is_named_where_no_other_node_has_joined(registry):
    join(registry, operator=True)
    said = f"0 of 1 nodes can serve {OTHER} right now (N-0000…: {LACKS_OTHER})"
    assert shortage(registry, OTHER) == said
    assert shortage(registry, OTHER, node="N-0000000000000001") == said
    assert decision(registry, OTHER).node_decision.reason == said


def test_own_nodes_are_named_behind_those_of_strangers(registry):
    join(registry, 1, online=False)
    join(registry, 2, operator=True)
    strangers = f"0 of 1 nodes can serve {OTHER} right now (N-0000…: offline, {LACKS_OTHER})"
    assert (
        shortage(registry, OTHER) == f"{strangers}; 0 of 1 nodes can serve {OTHER} right now (N-0000…: {LACKS_OTHER})"
    )
    assert decision(registry, OTHER).node_decision.reason == strangers


def test_a_strangers_node_named_where_only_the_operators_may_see_the_text_is_called_what_it_is(registry):
    join(registry, 1)
    join(registry, 2, operator=True)
    for model in ("brain/auto", MODEL):
        said = shortage(registry, model, node="N-0000000000000001", privacy="PRIVATE")
        barred = "NATIVE_NETWORK: privacy PRIVATE does not allow it, PUBLIC would"
        assert said == f"CLOUD_GPU: N-0000000000000001 is no node of the operator's own; {barred}"


def test_a_node_cannot_be_named_for_a_model_that_only_others_serve(registry):
    state = ClassState(ResourceClass.EXTERNAL_MODEL, supported=False, available=False)
    far = FakeClass(ResourceClass.EXTERNAL_MODEL, lambda: state, [], 0.0)
    with pytest.raises(ApiError) as told:
        decision(registry, "m", [far], node="N-0000000000000001")
    assert told.value.message == "no Brain Node serves m, so none can be named for it; leave out `node`"


def asking(decider: Decider, **wishes) -> list[str]:
    """Who would be asked for an answer of 1,000 tokens at most, in turn; else what keeps the classes out."""
    asked = request(privacy="PUBLIC", max_tokens=1000, **wishes)
    made, names = decider.decide(asked, Caller("k", Plan.PAID)), []
    while (target := decider.target(asked, made, set(names))) is not None:
        names.append(target.name)
    node = made.node_decision
    assert node is None or replay(routing_record(Routing(None, node))).same
    return names or [str(each) for row in made.class_decision.rows if row.state.supported for each in row.exclusions]


@pytest.mark.parametrize("model", [MODEL, "brain/auto"])
@pytest.mark.parametrize("operator", [True, False])
def test_a_class_whose_best_node_is_too_dear_is_judged_by_one_that_is_not(registry, model, operator):
    dear = join(registry, 1, operator=operator, ask=2.0)
    cheap = join(registry, 2, operator=operator, ask=0.5)
    assert registry.reserve(cheap)
    assert registry.reserve(cheap)
    name = ResourceClass.CLOUD_GPU if operator else ResourceClass.NATIVE_NETWORK
    decider = Decider([NodeClass(name, registry, CATALOG, operator=operator)], CATALOG, CommunityFirst.FREE)
    both, one = [dear.node_id, cheap.node_id], [cheap.node_id]
    limits = [None, 0.002, 0.0019, 0.0005, 0.0004]
    told = [asking(decider, model=model, max_cost_usd=most) for most in limits]
    assert told == [both, both, one, one, ["over_max_cost"]]
    whole = decider.decide(
        request(model=model, privacy="PUBLIC", max_tokens=1000, max_cost_usd=0.001), Caller("k", Plan.PAID)
    )
    node = whole.node_decision
    assert decider.whole(whole, node)().to_dict() == node.to_dict()
    assert node.rejections[dear.node_id] == ["ask above budget"]


@pytest.mark.parametrize("operator", [True, False])
def test_a_request_waits_for_the_one_node_that_is_not_too_dear(registry, operator):
    join(registry, 1, operator=operator, ask=2.0)
    cheap = join(registry, 2, operator=operator, ask=0.5)
    for _ in range(4):
        assert registry.reserve(cheap)
    name = ResourceClass.CLOUD_GPU if operator else ResourceClass.NATIVE_NETWORK
    decider = Decider([NodeClass(name, registry, CATALOG, operator=operator)], CATALOG, CommunityFirst.FREE)
    asked = request(model=MODEL, privacy="PUBLIC", max_tokens=1000, max_cost_usd=0.001)
    made = decider.decide(asked, Caller("k", Plan.PAID))
    assert (made.worth_waiting, made.class_decision.selected) == (True, None)
    assert made.shortage().endswith("01: ask above budget; N-0000000000000002: no free slot)")


def test_a_class_whose_best_upstream_is_too_dear_is_judged_by_one_that_is_not(registry):
    def upstream(name: str, usd: float, quality: float) -> UpstreamSpec:
        offers = {"m": UpstreamOffer("m", "m", Prices(0.0, usd), quality)}
        return UpstreamSpec(name, "http://192.0.2.1/v1", offers, frozenset({"/v1/chat/completions"}))

    def made(upstream, offer, *_):
        return SimpleNamespace(name=upstream.spec.name, model=offer.served, prices=offer.prices)

    own = NodeClass(ResourceClass.CLOUD_GPU, registry, CATALOG, operator=True)
    for kind in (ResourceClass.EXTERNAL_MODEL, ResourceClass.CLOUD_GPU):
        some = UpstreamClass(kind, made)
        some.configure([upstream("good", 2.0, 1.0), upstream("cheap", 0.5, 0.1)])
        backend = some if kind is ResourceClass.EXTERNAL_MODEL else CloudClass(own, some)
        decider = Decider([backend], CATALOG, CommunityFirst.FREE)
        limits = [None, 0.002, 0.0019, 0.0005, 0.0004]
        told = [asking(decider, mode="QUALITY", max_cost_usd=most) for most in limits]
        assert told == [["good", "cheap"], ["good", "cheap"], ["cheap"], ["cheap"], ["over_max_cost"]]


def test_own_nodes_that_are_too_dear_leave_a_request_to_an_own_server_that_is_not(registry):
    join(registry, 1, operator=True, ask=2.0)
    offers = {MODEL: UpstreamOffer(MODEL, MODEL, Prices(0.0, 0.5), None)}
    servers = UpstreamClass(ResourceClass.CLOUD_GPU, lambda upstream, offer, *_: FakeTarget(upstream.spec.name))
    servers.configure([UpstreamSpec("server", "http://192.0.2.1/v1", offers, frozenset({"/v1/chat/completions"}))])
    own = NodeClass(ResourceClass.CLOUD_GPU, registry, CATALOG, operator=True)
    decider = Decider([CloudClass(own, servers)], CATALOG, CommunityFirst.FREE)
    assert asking(decider, model=MODEL, max_cost_usd=0.001) == ["server"]


@pytest.mark.parametrize("model", [MODEL, "brain/auto"])
@pytest.mark.parametrize("operator", [True, False])
async def test_a_dry_run_lists_every_node_however_many_there_are(tmp_path, model, operator):
    async with coordinator_inside(tmp_path) as inside:
        made = await asyncio.to_thread(brain_coord, "key", "create", "--json", "--data-dir", str(tmp_path))
        for number in range(100):
            join(inside.coordinator.registry, number, operator=operator, online=False)
        asked = {"model": model, "privacy": "PUBLIC", "messages": [{"role": "user", "content": "x"}]}
        keys = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
        async with httpx.AsyncClient(base_url=inside.url, headers=keys, trust_env=False) as http:
            told = (await http.post("/v1/route", json=asked)).json()
    node = told["node"]
    assert list(node["rejections"]) == [f"N-{number:016X}" for number in range(100)]
    assert all(reasons[0] == "offline" for reasons in node["rejections"].values())
    assert (node["considered"], "unlisted" in node) == (100, False)
    assert "and 80 more: 80 × offline" in told["sentence"]
    assert node["reason"] in told["sentence"]


async def test_requests_that_wait_for_one_node_are_its_queue_and_send_others_elsewhere(registry):
    busy, free = join(registry, 1), join(registry, 2)
    native = NodeClass(ResourceClass.NATIVE_NETWORK, registry, CATALOG, operator=False)
    decider, caller = Decider([native], CATALOG, CommunityFirst.FREE, wait_s=60.0), Caller("k", Plan.FREE)
    room = WaitingRoom(10, registry.queued)
    for node in (*[busy] * 4, *[free] * 3):
        assert registry.reserve(node)

    async def wait() -> None:
        asked = request(model=MODEL, node=busy.node_id)
        record = Record(asked, caller, "r-1", 0.0, monotonic(), decider.decide(asked, caller), Result())
        await TargetPicker(record, decider, room, queue_s=60.0, limits=DEFAULT_PLANS[Plan.PAID]).wait()

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await eventually(lambda: len(room) == 3)
    registry.release(busy)  # which tells nobody here that there is a slot
    first, second = decider.decide(request(model=MODEL), caller).node_decision.ranked
    assert (first.node_id, first.availability) == (free.node_id, 0.25)
    assert (second.node_id, second.availability) == (busy.node_id, round(0.25 * (1 - 3 / 16), 6))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (busy.waiting, len(room)) == (0, 0)


@pytest.mark.parametrize(("reliability", "second"), [(0.1, "far"), (1.0, "two")])
def test_once_the_node_that_community_took_first_has_failed_the_scores_decide(reliability, second):
    def of(resource_class, *names, **state):
        return FakeClass(resource_class, lambda: ClassState(resource_class, **state), [*map(FakeTarget, names)], 0.0)

    native = of(ResourceClass.NATIVE_NETWORK, "one", "two", reliability=reliability)
    decider = Decider([of(ResourceClass.EXTERNAL_MODEL, "far", reliability=0.9), native], CATALOG, CommunityFirst.FREE)
    asked = request(mode="COMMUNITY", privacy="PUBLIC")
    made = decider.decide(asked, Caller("k", Plan.FREE))
    assert decider.target(asked, made, set()).name == "one"
    assert decider.target(asked, made, {"one"}).name == "two"  # the first lost its last slot to another request
    assert decider.target(asked, made, {"one"}, failed=True).name == second
    assert decider.target(asked, made, {"one", "two"}, failed=True).name == "far"
    assert decider.target(asked, made, {"one", "far"}, failed=True).name == "two"
