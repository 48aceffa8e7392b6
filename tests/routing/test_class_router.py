"""Which class takes a request, in which order the others follow, and why some cannot."""

from dataclasses import replace

import pytest

from brain_coord.routing import ClassRequest, decide_class
from brain_coord.routing.vocabulary import CommunityFirst, Exclusion, Mode, Plan, Privacy, ResourceClass
from tests.support.registries import a_class

BROWSER, NATIVE = ResourceClass.BROWSER_NETWORK, ResourceClass.NATIVE_NETWORK
CLOUD, EXTERNAL = ResourceClass.CLOUD_GPU, ResourceClass.EXTERNAL_MODEL
PUBLIC = ClassRequest(privacy=Privacy.PUBLIC, plan=Plan.PAID)


def order(decision):
    return [row.resource_class for row in decision.rows]


def scores(decision):
    return {row.resource_class: row.score for row in decision.rows}


def test_the_lowest_score_is_selected():
    decision = decide_class(PUBLIC, [a_class(CLOUD, cost_usd=0.02), a_class(EXTERNAL, cost_usd=0.01)])
    assert decision.selected == EXTERNAL
    assert scores(decision)[CLOUD] == pytest.approx(scores(decision)[EXTERNAL] + 0.40)


def test_cost_and_latency_are_normalised_over_the_eligible_only():
    cheap_but_out = a_class(NATIVE, cost_usd=0.0, available=False)
    decision = decide_class(PUBLIC, [a_class(CLOUD, cost_usd=0.02), a_class(EXTERNAL, cost_usd=0.01), cheap_but_out])
    assert {row.resource_class: row.penalties.cost for row in decision.rows if row.penalties} == {CLOUD: 1, EXTERNAL: 0}


@pytest.mark.parametrize("costs", [(0.01, 0.01), (0.01, None)], ids=["equal", "the only one"])
def test_a_value_without_a_rival_costs_nothing(costs):
    decision = decide_class(
        PUBLIC, [a_class(c, cost_usd=cost) for c, cost in zip((CLOUD, EXTERNAL), costs, strict=True)]
    )
    assert next(row for row in decision.rows if row.resource_class == CLOUD).penalties.cost == 0


@pytest.mark.parametrize(("mode", "penalty"), [(Mode.AUTO, 0.75), (Mode.CHEAP, 1.0), (Mode.QUALITY, 1.0)])
def test_an_unknown_value_is_penalised_and_named(mode, penalty):
    unknown = a_class(CLOUD, cost_usd=None, latency_ms=None, quality=None, reliability=None)
    row = decide_class(replace(PUBLIC, mode=mode), [unknown]).rows[0]
    assert row.penalties.unknown == ("cost", "latency", "reliability", "quality")
    assert {row.penalties.cost, row.penalties.latency, row.penalties.quality, row.penalties.reliability} == {penalty}


def test_a_class_that_knows_it_is_dear_can_still_beat_one_that_does_not_know():
    dear = a_class(CLOUD, cost_usd=0.02, latency_ms=5000.0)
    unknown = a_class(EXTERNAL, cost_usd=None, latency_ms=None)
    assert decide_class(PUBLIC, [dear, unknown]).selected == CLOUD


def test_equal_scores_go_to_more_samples_then_to_the_name():
    few, many, also_many = a_class(BROWSER, confidence=5), a_class(EXTERNAL), a_class(CLOUD)
    assert order(decide_class(PUBLIC, [few, many, also_many])) == [CLOUD, EXTERNAL, BROWSER]


def test_the_excluded_stand_last_without_a_score():
    decision = decide_class(PUBLIC, [a_class(BROWSER, supported=False), a_class(EXTERNAL, reliability=0.1)])
    assert order(decision) == [EXTERNAL, BROWSER]
    assert scores(decision)[BROWSER] is None
    assert decision.ranked == (EXTERNAL,)


@pytest.mark.parametrize(
    ("request_changes", "state", "exclusion"),
    [
        ({}, a_class(CLOUD, supported=False), Exclusion.UNSUPPORTED),
        ({}, a_class(CLOUD, available=False), Exclusion.UNAVAILABLE),
        ({"mode": Mode.BROWSER_ONLY}, a_class(CLOUD), Exclusion.BROWSER_ONLY),
        ({"privacy": Privacy.PRIVATE}, a_class(EXTERNAL), Exclusion.PRIVACY),
        ({"max_cost_usd": 0.5}, a_class(CLOUD, cost_usd=0.51), Exclusion.OVER_MAX_COST),
        ({"max_latency_ms": 500.0}, a_class(CLOUD, latency_ms=501.0), Exclusion.OVER_MAX_LATENCY),
    ],
    ids=lambda value: str(value) if isinstance(value, Exclusion) else "",
)
def test_each_exclusion_stands_alone(request_changes, state, exclusion):
    decision = decide_class(replace(PUBLIC, **request_changes), [state])
    assert decision.exclusions == {state.resource_class: (exclusion,)}
    assert decision.selected is None


def test_all_exclusions_are_told_in_the_published_order():
    request = ClassRequest(Mode.BROWSER_ONLY, Privacy.PRIVATE, max_cost_usd=0.0, max_latency_ms=0.0)
    decision = decide_class(request, [a_class(NATIVE, supported=False, available=False)])
    assert decision.exclusions == {NATIVE: tuple(Exclusion)}


@pytest.mark.parametrize("value", [None, 0.5])
def test_an_unknown_value_or_one_at_the_limit_is_not_over_it(value):
    request = replace(PUBLIC, max_cost_usd=0.5, max_latency_ms=0.5)
    assert decide_class(request, [a_class(CLOUD, cost_usd=value, latency_ms=value)]).selected == CLOUD


def test_browser_only_leaves_the_tabs():
    request = replace(PUBLIC, mode=Mode.BROWSER_ONLY)
    assert decide_class(request, [a_class(c) for c in ResourceClass]).ranked == (BROWSER,)


WORST_NODE = a_class(NATIVE, reliability=0.1, cost_usd=9.0, latency_ms=9000.0)


def test_community_takes_a_brain_node_first_and_changes_nothing_else():
    classes = [a_class(CLOUD), a_class(EXTERNAL, reliability=0.5), WORST_NODE]
    auto = decide_class(PUBLIC, classes, CommunityFirst.OFF)
    community = decide_class(replace(PUBLIC, mode=Mode.COMMUNITY), classes, CommunityFirst.OFF)
    assert order(auto) == [CLOUD, EXTERNAL, NATIVE]
    assert order(community) == [NATIVE, CLOUD, EXTERNAL]
    assert scores(auto) == scores(community)
    assert (auto.community_first, community.community_first) == (False, True)


def test_community_is_recorded_also_where_the_node_was_first_anyway():
    decision = decide_class(replace(PUBLIC, mode=Mode.COMMUNITY), [a_class(NATIVE), WORST_NODE][:1])
    assert decision.community_first


@pytest.mark.parametrize("change", [{"mock": True}, {"available": False}], ids=["mock", "not eligible"])
def test_community_does_not_take_a_node_that_is(change):
    decision = decide_class(replace(PUBLIC, mode=Mode.COMMUNITY), [a_class(CLOUD), replace(WORST_NODE, **change)])
    assert decision.selected == CLOUD
    assert not decision.community_first


def test_community_does_not_open_the_privacy_gate():
    request = ClassRequest(Mode.COMMUNITY, Privacy.STANDARD)
    assert decide_class(request, [a_class(CLOUD), WORST_NODE]).ranked == (CLOUD,)


def test_the_sentence_adds_up_to_the_score():
    decision = decide_class(PUBLIC, [a_class(CLOUD, cost_usd=None)])
    assert decision.reason == (
        "CLOUD_GPU (AUTO): score 0.375 = 0.40·cost UNKNOWN 0.75 + 0.25·latency 0.0 + 0.25·reliability 0.1 "
        "+ 0.10·quality 0.5 (lower is better)"
    )


def test_the_sentence_says_when_a_brain_node_was_taken_first():
    request = replace(PUBLIC, mode=Mode.COMMUNITY)
    reason = decide_class(request, [a_class(CLOUD), WORST_NODE]).reason
    assert reason.startswith("NATIVE_NETWORK (COMMUNITY): a Brain Node is taken first; score ")


def test_the_sentence_names_every_class_that_cannot():
    decision = decide_class(ClassRequest(), [a_class(CLOUD, available=False), a_class(NATIVE, supported=False)])
    assert decision.reason == (
        "no class can take this request (CLOUD_GPU: unavailable; NATIVE_NETWORK: unsupported, privacy)"
    )


def test_without_classes_the_sentence_says_so():
    assert decide_class(PUBLIC, []).reason == "no class can take this request (no class is configured)"


def test_json_shows_the_mode_that_was_asked_for_and_the_one_that_held():
    members = decide_class(ClassRequest(privacy=Privacy.PUBLIC), [a_class(NATIVE)]).to_dict()
    assert (members["requested_mode"], members["mode"], members["community_first"]) == ("AUTO", "COMMUNITY", True)


def test_json_shows_unknown_beside_its_penalty():
    members = decide_class(PUBLIC, [a_class(CLOUD, latency_ms=None)]).to_dict()
    assert members["unknown"] == {"CLOUD_GPU": ["latency"]}
    assert members["penalties"]["CLOUD_GPU"]["latency"] == 0.75
