"""What holds for every registry and every request."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.routing import decide_auto_node, decide_class, decide_node, may_see, replay, routing_record
from brain_coord.routing.dry_run import Routing
from brain_coord.routing.privacy import privacy_of
from brain_coord.routing.vocabulary import Mode, ResourceClass
from tests.support.registries import (
    BROKEN,
    CATALOGS,
    CLASS_REQUESTS,
    MEASUREMENTS,
    NEEDS,
    NODE_REQUESTS,
    POLICIES,
    class_lists,
    node_states,
    registries,
)

FAULTY = MEASUREMENTS | BROKEN


def as_strict_json(decision):
    return json.dumps(decision.to_dict(), allow_nan=False)


@given(NODE_REQUESTS, NEEDS, registries(), st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_does_not_matter(request, need, nodes, random):
    shuffled = random.sample(nodes, len(nodes))
    assert decide_node(request, need, shuffled) == decide_node(request, need, nodes)


@given(NODE_REQUESTS, CATALOGS, registries(), st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_does_not_matter_to_brain_auto(request, catalog, nodes, random):
    shuffled = random.sample(nodes, len(nodes))
    assert decide_auto_node(request, catalog, shuffled) == decide_auto_node(request, catalog, nodes)


@given(CLASS_REQUESTS, POLICIES, class_lists(), st.randoms(use_true_random=False))
def test_the_order_of_the_classes_does_not_matter(request, policy, classes, random):
    shuffled = random.sample(classes, len(classes))
    assert decide_class(request, shuffled, policy) == decide_class(request, classes, policy)


@given(NODE_REQUESTS, NEEDS, registries(FAULTY))
def test_every_node_is_either_ranked_or_rejected_with_a_reason(request, need, nodes):
    decision = decide_node(request, need, nodes)
    ranked = [score.node_id for score in decision.ranked]
    assert sorted([*ranked, *decision.rejections]) == sorted(node.node_id for node in nodes)
    assert all(decision.rejections.values())
    assert decision.reason


@given(NODE_REQUESTS, NEEDS, registries(FAULTY))
def test_scores_and_terms_stay_within_0_and_1_and_are_ranked(request, need, nodes):
    ranked = decide_node(request, need, nodes).ranked
    assert all(0 <= value <= 1 for score in ranked for value in score[1:7])
    assert [(-score.total, score.node_id) for score in ranked] == sorted((-s.total, s.node_id) for s in ranked)


@given(NODE_REQUESTS, CATALOGS, registries(FAULTY))
def test_no_pair_of_brain_auto_beats_the_chosen_one(request, catalog, nodes):
    decision = decide_auto_node(request, catalog, nodes)
    alone = [decide_node(request, model, nodes) for model in catalog if not model.mock]
    best = max((each.ranked[0].total for each in alone if each.ranked), default=None)
    assert (decision.ranked[0].score.total if decision.ranked else None) == best
    assert decision.model != "brain/mock"
    assert sorted({p.score.node_id for p in decision.ranked} | set(decision.rejections)) == sorted(
        node.node_id for node in nodes
    )


@given(CLASS_REQUESTS, POLICIES, class_lists(FAULTY, st.none() | st.floats(0, 1) | BROKEN))
def test_class_scores_and_penalties_stay_within_0_and_1(request, policy, classes):
    decision = decide_class(request, classes, policy)
    rows = [row for row in decision.rows if row.penalties is not None]
    assert all(0 <= row.score <= 1 for row in rows)
    assert all(0 <= penalty <= 1 for row in rows for penalty in (row.penalties.cost, row.penalties.latency))
    assert decision.reason


@given(CLASS_REQUESTS, POLICIES, class_lists(FAULTY))
def test_privacy_never_lets_a_class_through(request, policy, classes):
    for resource_class in decide_class(request, classes, policy).ranked:
        assert may_see(resource_class, privacy_of(request), carries_plaintext=request.carries_plaintext)


@given(CLASS_REQUESTS, POLICIES, class_lists())
def test_a_contradiction_never_has_a_class_to_go_to(request, policy, classes):
    decision = decide_class(request, classes, policy)
    assert not (decision.privacy_conflict and decision.ranked)


@given(CLASS_REQUESTS, POLICIES, class_lists())
def test_community_moves_one_row_and_nothing_else(request, policy, classes):
    decision = decide_class(request, classes, policy)
    if decision.community_first:
        assert decision.mode is Mode.COMMUNITY
        assert decision.selected is ResourceClass.NATIVE_NETWORK
        tail = decision.rows[1:]
    else:
        tail = decision.rows
    eligible = [row for row in tail if not row.exclusions]
    assert [row.score for row in eligible] == sorted(row.score for row in eligible)
    assert list(tail[: len(eligible)]) == eligible


@given(NODE_REQUESTS, NEEDS, registries(), node_states(), st.integers(0, 100_000))
def test_reported_memory_can_only_exclude(request, need, others, node, reported_mib):
    """However much a node claims, it never does better than by claiming nothing."""
    others = [other for other in others if other.node_id != node.node_id]
    silent = decide_node(request, need, [*others, replace(node, reported_vram_mib=None)])
    claiming = decide_node(request, need, [*others, replace(node, reported_vram_mib=reported_mib)])
    if node.node_id in {score.node_id for score in claiming.ranked}:
        assert [score[1:] for score in claiming.ranked] == [score[1:] for score in silent.ranked]
    else:
        assert node.node_id in claiming.rejections


@settings(max_examples=50)
@given(CLASS_REQUESTS, POLICIES, class_lists(FAULTY), NODE_REQUESTS, NEEDS, CATALOGS, registries(FAULTY))
def test_json_has_no_nan_and_a_record_gives_the_same_decision_again(
    class_request, policy, classes, request, need, catalog, nodes
):
    chosen = decide_class(class_request, classes, policy)
    for node in (decide_node(request, need, nodes), decide_auto_node(request, catalog, nodes)):
        as_strict_json(node)
        record = json.dumps(routing_record(Routing(chosen, node)), allow_nan=False)
        assert replay(json.loads(record)).differences == ()
    as_strict_json(chosen)
