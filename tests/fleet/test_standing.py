"""What a score stands on."""

from random import Random

from brain_coord.fleet.reliability import WINDOW_OUTCOMES, WINDOW_S, reliability_score
from brain_coord.fleet.standing import Standing
from brain_coord.store.records import Outcome, Uptime

NOW = 1_800_000_000.0
DAY = int(NOW // 86400)
KINDS = (
    *[("customer", "completed")] * 9,
    ("customer", "failed"),
    ("customer", "timed_out"),
    ("canary", "failed"),
    ("shadow", "matched"),
    ("shadow", "mismatched"),
)


def outcomes(count, kind="customer", result="completed", at_s=NOW):
    return [Outcome("N-1", kind, result, at_s) for _ in range(count)]


def standing(*groups, days=()):
    return Standing.of([each for group in groups for each in group], days)


def test_customer_jobs_shadow_runs_and_canaries_are_done_work():
    counts = standing(outcomes(3), outcomes(2, "shadow"), outcomes(1, "canary", "failed")).counts(NOW)
    assert (counts.completed, counts.failed, counts.canary_failed, counts.canary_passed) == (5, 1, 1, 0)


def test_the_benchmark_is_kept_apart():
    assert standing(outcomes(5, "benchmark", "failed")).counts(NOW).done == 0


def test_comparisons_are_counted_beside_the_work_they_came_from():
    counts = standing(
        outcomes(4, "shadow"), outcomes(3, "shadow", "matched"), outcomes(1, "shadow", "mismatched")
    ).counts(NOW)
    assert (counts.done, counts.matched, counts.mismatched) == (4, 3, 1)


def test_only_the_last_200_within_a_week_count():
    many = standing(outcomes(50, result="failed"), outcomes(WINDOW_OUTCOMES))
    assert many.counts(NOW).failed == 0
    assert standing(outcomes(9, result="failed", at_s=NOW - WINDOW_S - 1), outcomes(1)).counts(NOW).done == 1


def test_a_score_ages_without_new_outcomes():
    old = standing(outcomes(20, result="failed", at_s=NOW))
    assert old.score(NOW) < 70
    assert old.score(NOW + WINDOW_S + 1) == 70


def test_uptime_is_the_share_of_the_time_that_we_were_there_to_see():
    assert standing(days=[Uptime("N-1", DAY, 3000.0, 4000.0)]).uptime_fraction(NOW) == 0.75
    assert standing().uptime_fraction(NOW) == 1.0
    assert standing(days=[Uptime("N-1", DAY - 9, 0.0, 4000.0)]).uptime_fraction(NOW) == 1.0


def test_the_score_is_explained_by_the_same_counts():
    explained = standing(outcomes(20), days=[Uptime("N-1", DAY, 50.0, 100.0)]).explain(NOW)
    assert explained.score == 90
    assert "uptime (connected 50.0 % of the time)" in explained.sentence()


def test_a_score_that_was_kept_is_the_one_that_would_come_out_anew():
    rng = Random(7)
    kept, now = Standing(), NOW
    for _ in range(2000):
        now += rng.choice((0.0, 1.0, 600.0, 40_000.0))
        if rng.random() < 0.2:
            kept.observed(int(now // 86400), rng.random() * 10, 10.0)
        kind, result = rng.choice(KINDS)
        kept.add(Outcome("N-1", kind, result, now))
        now += rng.choice((0.0, 5.0, 90_000.0))
        assert kept.score(now) == reliability_score(kept.counts(now))


def test_days_that_are_over_are_let_go_of():
    kept = Standing()
    for day in range(DAY, DAY + 400):
        kept.observed(day, 5.0, 10.0)
    assert min(kept.days) == DAY + 399 - 7
