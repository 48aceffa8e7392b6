"""Which node takes a request: who is eligible, what each term of NodeScore is, and how ties break."""

from dataclasses import replace

import pytest

from brain_coord.routing import ModelNeed, NodeRequest, decide_node
from brain_coord.routing.vocabulary import Basis, Liveness
from tests.support.registries import MODEL, NEED, OTHER, a_node

ANY = NodeRequest()


def score_of(node, *others, request=ANY):
    decision = decide_node(request, NEED, [node, *others])
    return next(score for score in decision.ranked if score.node is node)


# Who is eligible


@pytest.mark.parametrize(
    ("change", "request_changes", "reason"),
    [
        ({"state": Liveness.OFFLINE}, {}, "offline"),
        ({"state": Liveness.DRAINING}, {}, "draining"),
        ({"state": Liveness.DEGRADED}, {}, "degraded"),
        ({"state": Liveness.BUSY, "active": 4}, {}, "no free slot"),
        ({"slots": 0}, {}, "no free slot"),
        ({"slots": 0, "active": -1}, {}, "no free slot"),  # a miscounted node must not divide by its slots
        ({"serves": frozenset({OTHER})}, {}, f"does not serve {MODEL}"),
        ({"basis": Basis.UNMEASURED}, {}, "not yet benchmarked"),
        ({"reported_vram_mib": 5119}, {}, "VRAM 5 GB < 6 GB required"),
        ({"region": "us-east"}, {"region": "eu-north", "require_region": True}, "not in eu-north"),
        ({"region": None}, {"region": "eu-north", "require_region": True}, "not in eu-north"),
        ({"ask_usd_per_1m": 0.51}, {"max_ask_usd_per_1m": 0.5}, "ask above budget"),
    ],
)
def test_each_rejection_stands_alone(change, request_changes, reason):
    decision = decide_node(NodeRequest(**request_changes), NEED, [a_node(**change)])
    assert decision.rejections == {a_node().node_id: [reason]}
    assert decision.selected is None


def test_all_rejections_are_told_in_the_published_order():
    hopeless = a_node(
        state=Liveness.OFFLINE,
        active=4,
        serves=frozenset(),
        basis=Basis.UNMEASURED,
        reported_vram_mib=8188,
        ask_usd_per_1m=2.0,
    )
    request = NodeRequest(region="eu-north", require_region=True, max_ask_usd_per_1m=1.0)
    decision = decide_node(request, ModelNeed(MODEL, 20000), [hopeless])
    assert decision.reason == (
        f"0 of 1 nodes can serve {MODEL} right now (N-A000…: offline, does not serve {MODEL}, not yet benchmarked, "
        "VRAM 8 GB < 20 GB required, not in eu-north, ask above budget)"
    )


def test_a_node_that_is_away_is_not_also_said_to_be_full():
    decision = decide_node(ANY, NEED, [a_node(state=Liveness.DRAINING, active=4)])
    assert list(decision.rejections.values()) == [["draining"]]


@pytest.mark.parametrize(
    ("change", "request_changes"),
    [
        ({"state": Liveness.BUSY, "active": 3}, {}),
        ({"reported_vram_mib": 6000}, {}),
        ({"reported_vram_mib": None}, {}),
        ({"region": "us-east"}, {"region": "eu-north"}),
        ({"region": "us-east"}, {"require_region": True}),
        ({"ask_usd_per_1m": 0.5}, {"max_ask_usd_per_1m": 0.5}),
        ({"ask_usd_per_1m": None}, {"max_ask_usd_per_1m": 0.5}),
        ({"loaded": frozenset()}, {}),
    ],
    ids=[
        "busy with a free slot",
        "exactly enough memory",
        "no memory reported",
        "another region where it is only a wish",
        "a required region that was never named",
        "an ask at the budget",
        "no ask under a budget",
        "the model not loaded",
    ],
)
def test_eligible_in_spite_of(change, request_changes):
    assert decide_node(NodeRequest(**request_changes), NEED, [a_node(**change)]).selected == a_node().node_id


def test_a_pinned_node_is_the_only_candidate():
    slow, fast = a_node("A", tok_s={MODEL: 1.0}), a_node("B")
    decision = decide_node(NodeRequest(node=slow.node_id), NEED, [slow, fast, a_node("C", state=Liveness.OFFLINE)])
    assert decision.selected == slow.node_id
    assert (decision.considered, decision.rejections) == (1, {})
    assert decision.ranked[0].capability == 1.0  # its pool is itself


def test_a_pinned_node_that_cannot_is_not_replaced():
    decision = decide_node(NodeRequest(node=a_node("A").node_id), NEED, [a_node("A", active=4), a_node("B")])
    assert decision.reason == f"0 of 1 nodes can serve {MODEL} right now (N-A000…: no free slot)"


def test_a_pinned_node_that_never_joined_is_named():
    decision = decide_node(NodeRequest(node="N-DEADBEEF00000000"), NEED, [a_node()])
    assert decision.reason == f"0 of 0 nodes can serve {MODEL} right now (N-DEADBEEF00000000 has not joined)"


@pytest.mark.parametrize(
    ("changes", "worth_waiting"),
    [
        ([{"active": 4}, {"state": Liveness.OFFLINE}], True),
        ([{"active": 4, "serves": frozenset()}], False),
        ([{"state": Liveness.OFFLINE}], False),
        ([{"active": 4}, {}], False),
        ([], False),
    ],
    ids=["a full node", "a full node that would not do anyway", "nobody there", "another is free", "no node"],
)
def test_waiting_is_worth_it_only_when_a_free_slot_is_all_that_is_missing(changes, worth_waiting):
    nodes = [a_node(name, **change) for name, change in zip("AB", changes, strict=False)]
    assert decide_node(ANY, NEED, nodes).worth_waiting is worth_waiting


# The five terms


@pytest.mark.parametrize(
    ("change", "capability"),
    [
        ({}, 1.0),
        ({"tok_s": {MODEL: 50.0}}, 0.75),
        ({"tok_s": {MODEL: 0.0}}, 0.5),
        ({"tok_s": {OTHER: 100.0}}, 0.75),
        ({"tok_s": {}, "benchmark_tok_s": 50.0}, 0.75),
        ({"tok_s": {}, "benchmark_tok_s": 20.0}, 0.6),
        ({"tok_s": {MODEL: 50.0}, "benchmark_tok_s": 100.0}, 0.75),
        ({"loaded": frozenset()}, 0.6),
        ({"loaded": frozenset({OTHER}), "tok_s": {MODEL: 50.0}}, 0.45),
    ],
)
def test_capability_is_the_engine_s_readiness_times_speed_against_the_fastest(change, capability):
    assert score_of(a_node("A", **change), a_node("B")).capability == pytest.approx(capability)


def test_speed_is_compared_with_the_eligible_only():
    faster_but_offline = a_node("B", tok_s={MODEL: 500.0}, state=Liveness.OFFLINE)
    assert score_of(a_node("A"), faster_but_offline).capability == 1.0


@pytest.mark.parametrize(
    ("change", "availability"),
    [
        ({}, 1.0),
        ({"active": 1}, 0.75),
        ({"queue": 4}, 0.75),
        ({"active": 2, "queue": 8}, 0.25),
        ({"queue": 16}, 0.0),
        ({"queue": 1000}, 0.0),
    ],
)
def test_availability_is_free_slots_times_room_in_the_queue(change, availability):
    assert score_of(a_node(**change)).availability == availability


@pytest.mark.parametrize(
    ("change", "region", "latency"),
    [
        ({"rtt_ms": 0.0}, None, 1.0),
        ({"rtt_ms": 60.0}, None, 0.86),
        ({"rtt_ms": 90.0}, None, 0.49),
        ({"rtt_ms": 90.0, "region": "eu-north"}, "eu-north", 0.69),
        ({"rtt_ms": 90.0, "region": "eu-north"}, "us-east", 0.49),
        ({"rtt_ms": 90.0, "region": None}, None, 0.49),
        ({"rtt_ms": 60.0, "region": "eu-north"}, "eu-north", 1.0),
        ({"rtt_ms": 300.0}, None, 0.0),
        ({"rtt_ms": 5000.0}, None, 0.0),
        ({"rtt_ms": None}, None, 0.5),
        ({"rtt_ms": None, "region": "eu-north"}, "eu-north", 0.7),
    ],
)
def test_latency_is_near_and_nearer_than_most_and_in_the_region(change, region, latency):
    # With 60 ms and 80 ms beside it the median is 60, 80 or the node's own round trip between them.
    others = [a_node("B", rtt_ms=60.0), a_node("C", rtt_ms=80.0), a_node("D", rtt_ms=None)]
    assert score_of(a_node("A", **change), *others, request=NodeRequest(region=region)).latency == pytest.approx(
        latency
    )


def test_the_median_of_an_even_pool_lies_between_the_middle_two():
    nodes = [a_node(name, rtt_ms=rtt) for name, rtt in (("A", 10.0), ("B", 20.0), ("C", 40.0), ("D", 80.0))]
    decision = decide_node(ANY, NEED, nodes)
    assert decision.pool.median_rtt_ms == 30.0
    assert {score.node_id[2] for score in decision.ranked if score.latency > 0.7} == {"A", "B"}


def test_the_median_of_huge_round_trips_stays_finite():
    decision = decide_node(ANY, NEED, [a_node("A", rtt_ms=1.5e308), a_node("B", rtt_ms=1.7e308)])
    assert decision.pool.median_rtt_ms == pytest.approx(1.6e308)


@pytest.mark.parametrize(
    ("ask", "others", "price"),
    [
        (None, [], 0.5),
        (None, [1.0], 0.5),
        (1.0, [], 0.2),
        (1.0, [0.5], 0.2),
        (0.5, [1.0], 0.6),
        (0.0, [1.0], 1.0),
        (0.0, [0.0], 1.0),
        (0.0, [], 1.0),
    ],
)
def test_price_is_the_ask_against_the_dearest(ask, others, price):
    dearer = [a_node(name, ask_usd_per_1m=other) for name, other in zip("BC", others, strict=False)]
    assert score_of(a_node("A", ask_usd_per_1m=ask), *dearer).price == pytest.approx(price)


def test_reputation_is_the_reliability_score():
    assert score_of(a_node(reliability=37)).reputation == 0.37


def test_the_total_is_the_published_sum():
    score = score_of(a_node(active=1, reliability=80, ask_usd_per_1m=0.5))
    assert score.total == pytest.approx(0.30 * 1 + 0.25 * 0.75 + 0.15 * 0.93 + 0.20 * 0.8 + 0.10 * 0.2)


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        ({"ask_usd_per_1m": 0.0}, ()),
        ({"ask_usd_per_1m": 0.0, "loaded": frozenset()}, ("model not loaded",)),
        ({"ask_usd_per_1m": 0.0, "tok_s": {}}, ("speed unmeasured",)),
        ({"ask_usd_per_1m": 0.0, "rtt_ms": None}, ("rtt unmeasured",)),
        ({}, ("no ask set",)),
        (
            {"loaded": frozenset(), "tok_s": {}, "rtt_ms": None},
            ("model not loaded", "speed unmeasured", "rtt unmeasured", "no ask set"),
        ),
    ],
)
def test_what_was_not_known_is_noted_in_a_fixed_order(change, notes):
    assert score_of(a_node(**change)).notes == notes


# Order


def test_equal_totals_go_to_the_lower_id():
    nodes = [a_node(name) for name in ("C", "A", "B")]
    assert [score.node_id[2] for score in decide_node(ANY, NEED, nodes).ranked] == ["A", "B", "C"]


def test_totals_that_are_published_as_equal_are_equal():
    # The second is ahead by less than a millionth: what a receipt shows decides, not what it does not show.
    nodes = [a_node("A", rtt_ms=30.000001), a_node("B", rtt_ms=30.0), a_node("C", rtt_ms=400.0)]
    ranked = decide_node(ANY, NEED, nodes).ranked
    assert ranked[0].total == ranked[1].total
    assert ranked[0].node_id < ranked[1].node_id


@pytest.mark.case("E-03")
def test_nodes_without_and_with_bad_samples_take_part():
    measured, new = a_node("A"), a_node("B", tok_s={})
    no_samples, zero = a_node("C", tok_s={MODEL: None}), a_node("D", tok_s={MODEL: 0.0})
    decision = decide_node(ANY, NEED, [measured, new, no_samples, zero])
    assert [score.node_id[2] for score in decision.ranked] == ["A", "B", "C", "D"]
    assert [score.capability for score in decision.ranked] == [1.0, 0.75, 0.75, 0.5]
    assert ["speed unmeasured" in score.notes for score in decision.ranked] == [False, True, True, False]


@pytest.mark.case("E-03")
def test_200_requests_reach_the_new_ones_and_the_same_state_gives_the_same_choice():
    fleet = [a_node("A"), a_node("B", tok_s={}), a_node("C", tok_s={MODEL: None}), a_node("D", tok_s={MODEL: 0.0})]
    got, running = dict.fromkeys("ABCD", 0), fleet
    for _ in range(200):
        decision = decide_node(ANY, NEED, running)
        if not decision.ranked:  # every slot is taken: all jobs end, the next ones start
            assert decision.worth_waiting
            running = fleet
            decision = decide_node(ANY, NEED, running)
        assert decision == decide_node(ANY, NEED, running)
        chosen = decision.ranked[0].node
        got[chosen.node_id[2]] += 1
        busier = replace(chosen, active=chosen.active + 1, state=Liveness.BUSY)
        running = [busier if node is chosen else node for node in running]
    assert min(got.values()) > 0


@pytest.mark.case("E-03")
def test_a_pool_in_which_everybody_was_measured_at_0_has_no_fastest():
    decision = decide_node(ANY, NEED, [a_node("A", tok_s={MODEL: 0.0}), a_node("B", tok_s={MODEL: 0.0})])
    assert [score.capability for score in decision.ranked] == [0.5, 0.5]


@pytest.mark.case("E-05")
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf"), -1.0])
def test_a_figure_that_cannot_be_a_measurement_counts_as_unknown(broken):
    bad = a_node("A", tok_s={MODEL: broken}, benchmark_tok_s=broken, rtt_ms=broken, ask_usd_per_1m=broken)
    unknown = a_node("A", tok_s={}, rtt_ms=None)
    good = a_node("B")
    assert score_of(bad, good)[1:] == score_of(unknown, good)[1:]
    assert score_of(good, bad)[1:] == score_of(good, unknown)[1:]


@pytest.mark.parametrize("rtt_ms", [0.0, 5e-324, 1e308])
def test_of_two_equal_round_trips_both_are_at_the_median_however_small_or_large(rtt_ms):
    decision = decide_node(ANY, NEED, [a_node("A", rtt_ms=rtt_ms), a_node("B", rtt_ms=rtt_ms)])
    assert decision.pool.median_rtt_ms == rtt_ms
    assert [score.latency for score in decision.ranked] == [0.3 if rtt_ms > 300 else 1.0] * 2
