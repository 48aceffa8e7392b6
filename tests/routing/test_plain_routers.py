"""Both routers come to what the published rules come to when they are worked out slowly, in exact fractions."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.routing import decide_auto_node, decide_class, decide_node
from brain_coord.routing.inputs import ClassRequest, NodeRequest
from brain_coord.routing.vocabulary import Mode, Plan, Privacy
from tests.support import plain_routers as plain
from tests.support.registries import (
    BROKEN,
    CATALOGS,
    MEASUREMENTS,
    NEEDS,
    POLICIES,
    REGIONS,
    class_lists,
    registries,
)

FAULTY = MEASUREMENTS | BROKEN
LIMITS = st.none() | st.sampled_from([0.0, 0.5, 30.0, 500.0]) | BROKEN
SHOWN = Fraction(1, 1_000_000)
"""What is shown is rounded to 6 decimals."""


@st.composite
def asked_of_nodes(draw):
    """Nodes, and a request of which each wish may fit some of them."""
    nodes = draw(registries(FAULTY))
    nodes = [replace(node, ask_usd_per_1m=draw(LIMITS), queue=draw(st.integers(0, 20))) for node in nodes]
    ids = [None, None, None, "N-0000000000000000", *(node.node_id for node in nodes)]
    request = NodeRequest(draw(REGIONS), draw(st.booleans()), draw(LIMITS), draw(st.sampled_from(ids)))
    return request, nodes


CLASS_REQUESTS = st.builds(
    ClassRequest,
    mode=st.sampled_from(Mode),
    privacy=st.none() | st.sampled_from(Privacy),
    plan=st.sampled_from(Plan),
    max_cost_usd=LIMITS,
    max_latency_ms=LIMITS,
    carries_plaintext=st.booleans(),
    names_node_model=st.booleans(),
)


def near(shown: float, exact: Fraction) -> bool:
    return abs(Fraction(shown) - exact) <= SHOWN


def in_order(ranked, exact) -> bool:
    """Whether no later one is better by more than rounding can hide, and equal ones as shown stand as the rules say."""
    return all(exact(one) >= exact(other) - SHOWN for one, other in pairwise(ranked))


@settings(max_examples=300, deadline=None)
@given(asked_of_nodes(), NEEDS)
def test_the_node_router_scores_and_rejects_as_the_rules_say(asked, need):
    request, nodes = asked
    decision = decide_node(request, need, nodes)
    wanted = plain.node_scores(request, need, nodes)
    assert {score.node_id for score in decision.ranked} == wanted.keys()
    for score in decision.ranked:
        total, terms = wanted[score.node_id]
        assert near(score.total, total)
        for name, term in terms.items():
            assert near(getattr(score, name), term), name
    assert in_order(decision.ranked, lambda score: wanted[score.node_id][0])
    told = {
        node_id: [word.split(" ")[0] if word.startswith("VRAM") else word for word in words]
        for node_id, words in decision.rejections.items()
    }
    candidates = [node for node in nodes if request.node in (None, node.node_id)]
    assert told == {node.node_id: words for node in candidates if (words := plain.rejections(node, request, need))}
    assert list(decision.rejections) == sorted(decision.rejections)


@settings(max_examples=150, deadline=None)
@given(asked_of_nodes(), CATALOGS)
def test_brain_auto_takes_a_pair_that_no_other_beats(asked, catalog):
    request, nodes = asked
    decision = decide_auto_node(request, catalog, nodes)
    wanted = {
        (model.model_id, node_id): total
        for model in catalog
        if not model.mock
        for node_id, (total, _) in plain.node_scores(request, model, nodes).items()
    }
    assert {(pair.model.model_id, pair.score.node_id) for pair in decision.ranked} == wanted.keys()
    assert in_order(decision.ranked, lambda pair: wanted[pair.model.model_id, pair.score.node_id])
    places = [model.model_id for model in catalog]
    for one, other in pairwise(decision.ranked):
        if one.score.total == other.score.total:
            assert (places.index(one.model.model_id), one.score.node_id) < (
                places.index(other.model.model_id),
                other.score.node_id,
            )


@settings(max_examples=300, deadline=None)
@given(CLASS_REQUESTS, POLICIES, class_lists(FAULTY, st.none() | st.floats(0, 1) | BROKEN))
def test_the_class_router_scores_and_excludes_as_the_rules_say(request, policy, classes):
    decision = decide_class(request, classes, policy)
    wanted = plain.class_scores(request, classes, policy)
    assert (decision.mode, decision.privacy) == (plain.class_mode(request, policy), plain.class_privacy(request))
    assert {str(row.resource_class) for row in decision.rows if not row.exclusions} == wanted.keys()
    for row in decision.rows:
        assert list(row.exclusions) == plain.exclusions(row.state, request, policy)
        assert row.score is None if row.exclusions else near(row.score, wanted[row.resource_class])
    eligible = [row for row in decision.rows if not row.exclusions]
    native = [row for row in eligible if row.resource_class == "NATIVE_NETWORK" and not row.state.mock]
    assert decision.community_first is bool(decision.mode == "COMMUNITY" and native)
    if decision.community_first:
        assert eligible.pop(0) is native[0]
    assert in_order(eligible, lambda row: -wanted[row.resource_class])
    for one, other in pairwise(eligible):
        if one.score == other.score:
            assert (-one.state.confidence, one.resource_class) < (-other.state.confidence, other.resource_class)
