"""Decisions over live classes: whatever was kept of earlier ones, each is the one that classes made anew would come to."""

import json
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.classes import node_class, upstream_class
from brain_coord.classes.backend import Query
from brain_coord.classes.browser import BrowserClass
from brain_coord.classes.cloud import CloudClass
from brain_coord.classes.node_class import NodeClass
from brain_coord.classes.prices import Prices
from brain_coord.classes.upstream import Offer, UpstreamSpec
from brain_coord.classes.upstream_class import UpstreamClass
from brain_coord.fleet.registry import Registry
from brain_coord.gateway.auth import Caller
from brain_coord.gateway.decide import DECISIONS, Decider
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.request import ApiRequest
from brain_coord.routing.inputs import ClassState, ModelNeed, NodeRequest
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.vocabulary import CommunityFirst, Liveness, Plan, ResourceClass
from tests.routing.test_index_live import happens
from tests.support.fake_targets import FakeClass, FakeTarget, request
from tests.support.fleets import CATALOG, NAMES
from tests.support.registries import a_node

PATH = "/v1/chat/completions"
MODELS = [SimpleNamespace(id=need.model_id, min_vram_mib=need.min_vram_mib, mock=need.mock) for need in CATALOG]
ASKED = [*NAMES, "brain/auto", "elsewhere"]
TABS = [
    decide_node(NodeRequest(), ModelNeed("stage"), tabs)
    for tab in [a_node("T-1", serves=frozenset({"stage"}))]
    for tabs in ([], [tab], [replace(tab, active=4)], [replace(tab, state=Liveness.DEGRADED)])
]
WISHES = [
    {},
    {"mode": "COMMUNITY", "privacy": "PUBLIC"},
    {"mode": "QUALITY", "privacy": "PUBLIC"},
    {"mode": "BROWSER_ONLY", "privacy": "PUBLIC"},
    {"privacy": "PRIVATE"},
    {"privacy": "PUBLIC", "max_cost_usd": 0.0001},
    {"region": "eu"},
    {"region": "eu", "require_region": True},
    {"max_ask_usd_per_1m": 0.7},
    {"mode": "CHEAP", "privacy": "STANDARD", "max_cost_usd": 0.001},
    {"privacy": "PUBLIC", "max_latency_ms": 15.0},
]


class Names(list[str]):
    """All that a decider asks of a catalog."""

    def nearest(self, name: str) -> list[str]:
        return []


@dataclass
class Tabs:
    """All that a class of tabs asks of them."""

    online: bool = False
    decision: NodeDecision | None = None
    able: frozenset[str] = frozenset()

    def models(self) -> list[str]:
        return sorted(self.able)

    def supports(self, query: Query) -> bool:
        return query.model in self.able

    def decide(self, query: Query) -> NodeDecision | None:
        return self.decision

    def target(self, query: Query) -> FakeTarget:
        return FakeTarget("tabs", resource_class=ResourceClass.BROWSER_NETWORK)


class Live:
    """A registry and all classes over it, and what can happen to them."""

    now = 1000.0

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.registry = Registry(15.0, needs={need.model_id: need for need in CATALOG})
        self.nodes = {operator: self._nodes(operator) for operator in (False, True)}
        self.servers = UpstreamClass(ResourceClass.CLOUD_GPU, make_target=None, samples=self.nodes[True].samples)
        self.services = UpstreamClass(ResourceClass.EXTERNAL_MODEL, make_target=None)
        for some in (self.servers, self.services):
            some._make_target = lambda upstream, offer, *_: SimpleNamespace(
                name=upstream.spec.name, model=offer.served, prices=offer.prices
            )
        self.browser, self.tabs = BrowserClass(), Tabs()

    def _nodes(self, operator: bool, **kept) -> NodeClass:
        name = ResourceClass.CLOUD_GPU if operator else ResourceClass.NATIVE_NETWORK
        return NodeClass(name, self.registry, MODELS, operator=operator, **kept)

    def anew(self, operator: bool) -> NodeClass:
        """A class that knows what the live one does, and has kept nothing of it."""
        known, hooks = self.nodes[operator], (list(self.registry.on_touch), list(self.registry.on_gone))
        fresh = self._nodes(operator, health=known.health, samples=known.samples)
        fresh._returning = known._returning
        self.registry.on_touch[:], self.registry.on_gone[:] = hooks
        return fresh

    def tabs_anew(self) -> BrowserClass:
        fresh = BrowserClass()
        fresh.samples, fresh.compute, fresh.work = self.browser.samples, self.browser.compute, self.browser.work
        return fresh

    def decider(self, native: NodeClass, own: NodeClass, tabs: BrowserClass) -> Decider:
        backends = [native, CloudClass(own, self.servers), self.services, tabs]
        return Decider(backends, Names(NAMES), CommunityFirst.FREE)

    def happens(self) -> None:
        rng, which = self.rng, self.rng.random()
        if which < 0.06:
            self.now += rng.choice((0.01, 1.0, 31.0, 400.0, 3601.0))
        elif which < 0.09:
            rng.choice((self.servers, self.services)).configure(self._specs())
        elif which < 0.15:
            samples = rng.choice((*self.nodes.values(), self.servers, self.services, self.browser)).samples
            rng.choice((lambda: samples.completed(rng.choice((None, 10.0, 20.0))), samples.failed))()
        elif which < 0.35:
            self._target_does_something()
        elif which < 0.39:
            self.browser.work = rng.choice((self.tabs, self.tabs, None))
            self.tabs.online, self.tabs.decision = rng.random() < 0.7, rng.choice((None, *TABS))
            self.tabs.able = frozenset(rng.sample(ASKED, 2))
        elif which < 0.42:
            for upstream in (*self.servers.upstreams.values(), *self.services.upstreams.values()):
                upstream.active = rng.choice((0, 1, upstream.spec.slots))
        else:
            happens(rng, self.registry)

    def _specs(self) -> list[UpstreamSpec]:
        rng, prices = self.rng, (Prices(), Prices(1.0, 2.0), Prices(0.5, 4.0))
        return [
            UpstreamSpec(
                f"u{number}",
                f"http://192.0.2.{rng.randint(1, 2)}/v1",
                {name: Offer(name, name, rng.choice(prices), rng.choice((None, 0.5))) for name in rng.sample(ASKED, 2)},
                frozenset({PATH}),
                region=rng.choice((None, "eu")),
            )
            for number in range(rng.randint(0, 2))
        ]

    def _target_does_something(self) -> None:
        rng, asked = self.rng, (PATH, self.rng.choice(ASKED))
        books = [self.nodes[node.operator].health.of(node.node_id) for node in self.registry.nodes.values()]
        books += [each.health for some in (self.servers, self.services) for each in some.upstreams.values()]
        if not books:
            return
        health = rng.choice(books)
        if (ticket := health.breaker.begin(self.now)) is None:
            return
        rng.choice(
            (
                lambda: health.failed(ticket, self.now, "lost", spread=0.5),
                lambda: health.succeeded(ticket, asked),
                lambda: health.dropped(ticket),
                lambda: health.busy(self.now, rng.choice((None, 3.0, 100.0))),
                lambda: health.refused_us(self.now, rng.choice((401, 404)), rng.choice((None, asked))),
            )
        )()


def told(decider: Decider, asked: ApiRequest, caller: Caller) -> object:
    """Everything that a decision says."""
    try:
        decision = decider.decide(asked, caller)
    except ApiError as error:
        return str(error)
    prospects = [
        (each.state, each.wait_s, each.passed_over, each.choice, each.shortage, shown(each.node_decision))
        for each in decision.prospects.values()
    ]
    asking, passed = [], frozenset[str]()
    while (target := decider.target(asked, decision, passed)) is not None:
        asking.append((target.name, target.model))
        passed |= {target.name}
    sentence = decision.sentence(decision.passed_over())
    return decision.class_decision.to_dict(), prospects, sentence, decision.wait_s, asking, decider.full(decision)


def shown(node_decision) -> str | None:
    return None if node_decision is None else json.dumps(node_decision.to_dict())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_after_any_events_a_decision_is_that_of_classes_made_anew(seed):
    rng = random.Random(seed)
    live = Live(rng)
    decider = live.decider(live.nodes[False], live.nodes[True], live.browser)
    with pytest.MonkeyPatch.context() as patch:
        for module in (node_class, upstream_class):
            patch.setattr(module, "monotonic", lambda: live.now)
        for _ in range(150):
            live.happens()
            pinned = (
                {"node": rng.choice(list(live.registry.nodes))} if live.registry.nodes and rng.random() < 0.1 else {}
            )
            limit = rng.choice((10, 100))
            asked = request(model=rng.choice(ASKED), **rng.choice(WISHES), **pinned, max_tokens=limit)
            caller = Caller("k", rng.choice(list(Plan)))
            anew = live.decider(live.anew(False), live.anew(True), live.tabs_anew())
            assert told(decider, asked, caller) == told(anew, asked, caller)


def test_a_question_that_is_answered_otherwise_each_time_keeps_few_of_the_answers():
    states = (ClassState(ResourceClass.EXTERNAL_MODEL, latency_ms=float(number)) for number in range(10 * DECISIONS))
    decider = Decider([FakeClass(ResourceClass.EXTERNAL_MODEL, lambda: next(states), (), 0.0)], {}, CommunityFirst.FREE)
    for number in range(10 * DECISIONS):
        decision = decider.decide(request(), Caller("k", Plan.FREE))
        assert decision.class_decision.rows[0].state.latency_ms == number
    (question,) = decider._questions.values()
    assert len(question.decisions) <= DECISIONS
