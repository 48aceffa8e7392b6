"""The Brain Reliability Score."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from brain_coord.fleet.reliability import Outcomes, explain, reliability_score

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "reliability.json").read_text())
COUNTS = st.integers(0, 250)
OUTCOMES = st.builds(
    Outcomes,
    completed=COUNTS,
    failed=COUNTS,
    timed_out=COUNTS,
    uptime_fraction=st.floats(0, 1),
    matched=COUNTS,
    mismatched=COUNTS,
    canary_passed=COUNTS,
    canary_failed=COUNTS,
)
PERFECT = Outcomes(completed=200)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: json.dumps(list(vector["outcomes"].values())))
def test_a_worked_score_comes_out_exactly(vector):
    counts = dict(vector["outcomes"])
    assert reliability_score(Outcomes(uptime_fraction=counts.pop("uptime"), **counts)) == vector["score"]


def test_a_node_without_outcomes_has_70_whatever_its_uptime():
    assert reliability_score(Outcomes(uptime_fraction=0.0)) == 70


def test_a_perfect_node_reaches_100_with_20_outcomes_and_not_before():
    assert reliability_score(Outcomes(completed=20)) == 100
    assert reliability_score(Outcomes(completed=19)) < 100


@pytest.mark.parametrize(
    ("change", "score"),
    [
        ({"completed": 100, "failed": 100}, 70),  # half of 60 is lost
        ({"completed": 100, "timed_out": 100}, 60),  # and half of 20 more when it was time that ran out
        ({"uptime_fraction": 0.5}, 90),
        ({"matched": 1, "mismatched": 1}, 90),
        ({"canary_passed": 1, "canary_failed": 1}, 85),
    ],
)
def test_each_fault_costs_its_weight(change, score):
    assert reliability_score(replace(PERFECT, **change)) == score


def test_a_half_is_rounded_up():
    assert explain(Outcomes(completed=1, uptime_fraction=1.0, canary_passed=5, canary_failed=1)).score == 67  # 66.5
    assert reliability_score(Outcomes(failed=1, uptime_fraction=1.0, canary_failed=2)) == 39  # 38.5
    # In binary fractions the terms of this one add up to 55.49999999999999.
    assert reliability_score(Outcomes(completed=12, failed=4, timed_out=3, uptime_fraction=0.0)) == 56


def test_the_worst_node_has_0():
    assert reliability_score(Outcomes(timed_out=200, uptime_fraction=0.0, mismatched=9, canary_failed=9)) == 0


@given(OUTCOMES)
def test_the_terms_add_up_to_the_score_within_0_and_100(outcomes):
    explanation = explain(outcomes)
    assert 0 <= explanation.score <= 100
    total = min(100.0, max(0.0, sum(term.points for term in explanation.terms)))
    assert explanation.score == pytest.approx(total, abs=0.5 + 1e-6)
    json.dumps(explanation.to_dict(), allow_nan=False)


@given(OUTCOMES)
def test_one_more_failure_never_helps_a_node_with_full_evidence(outcomes):
    seasoned = replace(outcomes, completed=outcomes.completed + 20)
    # By the published formula a plain failure raises the share that was in time; that outweighs the rest only for a node
    # that lets more than three jobs time out for each it completes.
    assume(seasoned.timed_out <= 3 * seasoned.completed)
    for fault in ("failed", "timed_out", "mismatched", "canary_failed"):
        worse = replace(seasoned, **{fault: getattr(seasoned, fault) + 1})
        assert reliability_score(worse) <= reliability_score(seasoned)


def test_the_explanation_names_the_terms_that_count():
    sentence = explain(Outcomes(completed=12, uptime_fraction=0.97, canary_passed=10, canary_failed=2)).sentence()
    assert sentence == (
        "83 = +28.00 start (12 of 20 outcomes) +36.00 completed (12 of 12) +12.00 in time (0 of 12 timed out) "
        "+11.64 uptime (connected 97.0 % of the time) -5.00 canaries (2 of 12 canaries failed)"
    )


def test_the_explanation_of_a_score_of_nothing_is_the_score():
    assert explain(Outcomes(timed_out=20, uptime_fraction=0.0)).sentence() == "0"
