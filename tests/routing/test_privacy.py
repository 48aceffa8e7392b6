"""Privacy is a filter; the default level and mode follow from the request and the operator's rule."""

from itertools import product

import pytest

from brain_coord.routing import ClassRequest, decide_class, default_privacy, is_privacy_conflict, may_see
from brain_coord.routing.modes import resolve_mode
from brain_coord.routing.vocabulary import CommunityFirst, Mode, Plan, Privacy, ResourceClass
from tests.support.registries import a_class

BROWSER, NATIVE = ResourceClass.BROWSER_NETWORK, ResourceClass.NATIVE_NETWORK
CLOUD, EXTERNAL = ResourceClass.CLOUD_GPU, ResourceClass.EXTERNAL_MODEL


@pytest.mark.parametrize(
    ("privacy", "allowed"),
    [
        (Privacy.PUBLIC, {BROWSER, NATIVE, CLOUD, EXTERNAL}),
        (Privacy.STANDARD, {CLOUD, EXTERNAL}),
        (Privacy.PRIVATE, {CLOUD}),
    ],
)
def test_each_level_allows_its_classes(privacy, allowed):
    assert {each for each in ResourceClass if may_see(each, privacy)} == allowed


@pytest.mark.parametrize("privacy", Privacy)
def test_work_without_plaintext_may_go_anywhere(privacy):
    assert all(may_see(each, privacy, carries_plaintext=False) for each in ResourceClass)


def test_a_node_model_defaults_to_public_and_all_else_to_standard():
    assert default_privacy(names_node_model=True) is Privacy.PUBLIC
    assert default_privacy(names_node_model=False) is Privacy.STANDARD
    classes = [a_class(NATIVE), a_class(CLOUD)]
    assert set(decide_class(ClassRequest(names_node_model=True), classes).ranked) == {NATIVE, CLOUD}
    assert decide_class(ClassRequest(), classes).ranked == (CLOUD,)


NODE_MODEL = {"names_node_model": True}


@pytest.mark.parametrize(
    ("request_", "classes", "conflict"),
    [
        (ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [a_class(NATIVE)], True),
        (ClassRequest(privacy=Privacy.STANDARD, **NODE_MODEL), [a_class(NATIVE)], True),
        (ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [a_class(NATIVE), a_class(EXTERNAL)], True),
        (ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [a_class(CLOUD, supported=False)], True),
        (ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [], True),
        # A class that may see it serves the model: not a contradiction, also while it is away.
        (ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [a_class(NATIVE), a_class(CLOUD)], False),
        (ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [a_class(CLOUD, available=False)], False),
        (ClassRequest(privacy=Privacy.STANDARD, **NODE_MODEL), [a_class(EXTERNAL)], False),
        (ClassRequest(privacy=Privacy.PUBLIC, **NODE_MODEL), [a_class(NATIVE)], False),
        (ClassRequest(privacy=None, **NODE_MODEL), [a_class(NATIVE)], False),
        (ClassRequest(privacy=Privacy.PRIVATE), [a_class(NATIVE)], False),
        (ClassRequest(privacy=Privacy.PRIVATE, carries_plaintext=False, **NODE_MODEL), [a_class(NATIVE)], False),
    ],
)
def test_a_node_model_at_a_level_that_none_of_its_classes_may_see_is_a_contradiction(request_, classes, conflict):
    assert is_privacy_conflict(request_, classes) is conflict
    assert decide_class(request_, classes).to_dict()["privacy_conflict"] is conflict


def test_a_contradiction_selects_nothing_and_says_what_it_is():
    decision = decide_class(ClassRequest(privacy=Privacy.PRIVATE, **NODE_MODEL), [a_class(NATIVE), a_class(EXTERNAL)])
    assert decision.selected is None
    assert decision.reason == (
        "no class that PRIVATE allows serves this model (EXTERNAL_MODEL: privacy; NATIVE_NETWORK: privacy)"
    )


@pytest.mark.parametrize(("mode", "privacy", "plan", "policy"), [*product(Mode, Privacy, Plan, CommunityFirst)])
def test_only_a_public_request_in_auto_becomes_community_and_only_where_the_rule_says_so(mode, privacy, plan, policy):
    covered = policy is CommunityFirst.ALL or (policy is CommunityFirst.FREE and plan is Plan.FREE)
    becomes = mode is Mode.AUTO and privacy is Privacy.PUBLIC and covered
    assert resolve_mode(ClassRequest(mode, privacy, plan), policy) is (Mode.COMMUNITY if becomes else mode)


def test_a_node_model_without_a_level_counts_as_public_for_the_rule():
    assert resolve_mode(ClassRequest(names_node_model=True), CommunityFirst.FREE) is Mode.COMMUNITY
    assert resolve_mode(ClassRequest(names_node_model=False), CommunityFirst.FREE) is Mode.AUTO
