"""No byte of a STANDARD or PRIVATE prompt reaches a class that may not see it: whatever is there, whatever fails."""

import asyncio
import contextlib
from time import monotonic

from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.classes.backend import Query
from brain_coord.classes.node_class import NodeClass
from brain_coord.classes.target import TargetFault
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.attempts import Limits, run_attempts
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.journal import Record
from brain_coord.gateway.limits import DEFAULT_PLANS
from brain_coord.gateway.picker import TargetPicker
from brain_coord.gateway.relay import PhaseLimits
from brain_coord.gateway.result import Result
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.link.slot import SlotQueue
from brain_coord.routing.inputs import ClassState, NodeRequest
from brain_coord.routing.vocabulary import CommunityFirst, Mode, Plan, Privacy, ResourceClass
from brain_coord.store.records import Benchmark
from brain_node.contract.catalog import load_catalog
from brain_node.contract.messages import ModelOffer, Offer, Report
from tests.support.fake_targets import OK, PROMPT, FakeClass, FakeTarget, Play, failing, request

ALLOWED = {
    Privacy.PUBLIC: set(ResourceClass),
    Privacy.STANDARD: {ResourceClass.CLOUD_GPU, ResourceClass.EXTERNAL_MODEL},
    Privacy.PRIVATE: {ResourceClass.CLOUD_GPU},
}
CATALOG = load_catalog()
NODE_MODEL = "brain/mock"
LIMITS = Limits(phases=PhaseLimits(accept_s=0.02, first_output_s=0.02, between_events_s=0.02), whole_s=0.05)


def faults() -> st.SearchStrategy[TargetFault]:
    causes = st.sampled_from(["no_free_slot", "node_lost", "connection_refused", "protocol", "incomplete"])
    return st.builds(lambda cause, ran: TargetFault(cause, "no", ran=ran), causes, st.booleans())


plays = st.one_of(
    st.just(OK),
    st.sampled_from([400, 401, 403, 404, 429, 500, 503]).map(failing),
    faults().map(lambda fault: Play(refuses=fault)),
    faults().map(lambda fault: Play(breaks=fault)),
    st.just(Play(status=None)),
    st.just(Play(body=b"not JSON")),
)
numbers = st.none() | st.floats(0, 10, allow_nan=False)
states = st.builds(
    lambda supported, available, cost, latency, reliability, quality, mock: {
        "supported": supported,
        "available": available,
        "cost_usd": cost,
        "latency_ms": latency,
        "reliability": reliability,
        "quality": quality,
        "mock": mock,
    },
    st.booleans(),
    st.booleans(),
    numbers,
    numbers,
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
    st.booleans(),
)
classes = st.fixed_dictionaries(
    {},
    optional={
        each: st.tuples(st.lists(states, min_size=1, max_size=4), st.lists(plays, max_size=3)) for each in ResourceClass
    },
)
wishes = st.fixed_dictionaries(
    {},
    optional={
        "privacy": st.sampled_from([level.value for level in Privacy]),
        "mode": st.sampled_from([mode.value for mode in Mode]),
        "max_cost_usd": st.floats(0, 5),
        "max_latency_ms": st.floats(0, 5),
    },
)


def built(registry: dict) -> tuple[list[FakeClass], dict[ResourceClass, list[FakeTarget]]]:
    """Fake classes; each look finds the class in another of its states, as if time went by."""
    backends, targets = [], {}
    for resource_class, (given_states, given_plays) in registry.items():
        looks = iter([])

        def state(resource_class=resource_class, given_states=given_states) -> ClassState:
            nonlocal looks
            looked = next(looks, None)
            if looked is None:
                looks = iter(given_states)
                looked = next(looks)
            return ClassState(resource_class, **looked)

        made = [
            FakeTarget(f"{resource_class}-{number}", play, resource_class=resource_class)
            for number, play in enumerate(given_plays)
        ]
        targets[resource_class] = made
        backends.append(FakeClass(resource_class, state, made, wait_s=0.01))
    return backends, targets


async def run(backends, model: str, asked: dict, plan: Plan, community: CommunityFirst) -> Privacy:
    """Decide, try, wait and fall back as the gateway does; the level that held."""
    level = Privacy(asked.get("privacy", Privacy.PUBLIC if model in CATALOG else Privacy.STANDARD))
    decider = Decider(backends, CATALOG, community, wait_s=0.02)
    parsed, caller, room = request(**{**asked, "model": model}), Caller("k", plan), WaitingRoom(4)
    try:
        decision = decider.decide(parsed, caller)
    except ApiError:
        return level
    assert decision.class_decision.privacy is level
    record = Record(parsed, caller, "r-1", 0.0, monotonic(), decision, Result())
    picker = TargetPicker(record, decider, room, queue_s=0.02, limits=DEFAULT_PLANS[Plan.PAID])
    asyncio.get_running_loop().call_later(0.005, room.capacity)
    with contextlib.suppress(ApiError):
        await run_attempts(parsed, picker, record.result, began=monotonic(), limits=LIMITS, stream=None)
    assert len(room) == 0
    return level


@settings(max_examples=300, deadline=None)
@given(
    classes,
    wishes,
    st.sampled_from(["m", NODE_MODEL, "brain/auto"]),
    st.sampled_from(Plan),
    st.sampled_from(CommunityFirst),
)
def test_whatever_the_registry_and_whatever_fails_only_allowed_classes_see_the_prompt(
    registry, asked, model, plan, community
):
    backends, targets = built(registry)
    level = asyncio.run(run(backends, model, asked, plan, community))
    for resource_class, made in targets.items():
        for target in made:
            assert target.running == 0
            if resource_class not in ALLOWED[level]:
                assert target.seen == [], f"{resource_class} saw a {level} prompt"
            assert all(PROMPT.encode() in body for body in target.seen)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8))
def test_a_node_is_never_a_target_of_a_class_it_does_not_belong_to_even_if_that_changed_since(kinds):
    registry = Registry(15.0)
    native = NodeClass(ResourceClass.NATIVE_NETWORK, registry, CATALOG, operator=False)
    own = NodeClass(ResourceClass.CLOUD_GPU, registry, CATALOG, operator=True)
    offer = Offer(models=(ModelOffer(id=NODE_MODEL, loaded=True),), slots=4)
    for number, (before, _) in enumerate(kinds):
        node = registry.add(Node(node_id=f"N-{number:016X}", public_key=b"", operator=before))
        node.measured.benchmarks[NODE_MODEL] = Benchmark(node.node_id, NODE_MODEL, 50.0, 10.0, None, "", 0.0)
        session = Session(str(number), None, SlotQueue(lambda _: None), str(number), "", 0.0, 0.0)
        registry.connect(node, session, Report(), offer, ())
    query = Query(NODE_MODEL, "/v1/chat/completions", NodeRequest())
    decided = [(backend, backend.prospect(query)) for backend in (native, own)]
    assert sum(len(prospect.node_decision.ranked) for _, prospect in decided) == len(kinds)
    for node, (_, after) in zip(registry, kinds, strict=True):
        node.operator = after
    for backend, prospect in decided:
        passed: set[str] = set()
        while (target := backend.target(query, prospect, passed)) is not None:
            passed.add(target.name)
            assert registry.nodes[target.name].operator is (backend is own)
