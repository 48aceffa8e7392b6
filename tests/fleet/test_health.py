"""When a node is fit for work, and how it comes back."""

import time

import pytest

from brain_coord.fleet.health import (
    BENCHMARKS,
    CALM_S,
    COMPARED,
    FAULTS,
    FIRST_PROBE_S,
    MAX_PROBE_S,
    MISMATCHES,
    NEXT_PASS_S,
    PASSES,
    Health,
)
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.store.records import Outcome


def degraded(cause, now=0.0):
    health = Health()
    while health.degraded is None:
        {
            "faults": lambda: health.job("failed", now),
            "canaries": lambda: health.canary(passed=False, now=now),
            "benchmark": lambda: health.benchmark(passed=False, cause="timeout", now=now),
            "mismatches": lambda: health.comparison(agreed=False, now=now),
        }[cause]()
    assert health.degraded.cause == cause
    return health


def test_five_faults_in_a_row_and_not_four():
    health = Health()
    assert [health.job("failed", 1.0) for _ in range(FAULTS)] == [False] * (FAULTS - 1) + [True]
    assert health.degraded.reason == "5 jobs in a row failed"


def test_one_good_job_in_between_forgives_the_faults_before_it():
    health = Health()
    for _ in range(3):
        for result in ("failed", "timed_out", "failed", "timed_out", "completed"):
            health.job(result, 1.0)
    assert health.degraded is None


def test_three_canaries_in_a_row():
    health = Health()
    for passed in (False, False, True, False, False):
        health.canary(passed=passed, now=1.0)
    assert health.degraded is None
    assert health.watched
    health.canary(passed=False, now=1.0)
    assert health.suspect


def test_comparisons_lost_among_the_last_twelve():
    health = Health()
    for number in range(COMPARED):
        health.comparison(agreed=number % 3 == 0, now=1.0)
    assert health.mismatches == MISMATCHES
    assert health.suspect


def test_a_few_lost_comparisons_only_bring_more_of_them():
    health = Health()
    for agreed in (True, True, False, False):
        health.comparison(agreed=agreed, now=1.0)
    assert health.doubted
    assert health.watched
    assert health.degraded is None


def test_benchmarks_that_keep_failing():
    health = Health()
    results = [health.benchmark(passed=False, cause="engine_error", now=1.0) for _ in range(BENCHMARKS)]
    assert results[-1]
    assert health.degraded.reason == "3 benchmarks in a row failed (engine_error)"


@pytest.mark.parametrize("cause", PASSES)
def test_the_first_canary_of_the_way_back_comes_after_five_minutes(cause):
    assert degraded(cause, now=100.0).next_probe_at == 100.0 + FIRST_PROBE_S


def test_the_wait_doubles_with_each_failed_canary_up_to_an_hour():
    health, now, waits = degraded("faults"), 0.0, []
    for _ in range(6):
        waits.append(health.next_probe_at - now)
        now = health.next_probe_at
        health.canary(passed=False, now=now)
    assert waits == [300, 600, 1200, 2400, MAX_PROBE_S, MAX_PROBE_S]


def come_back(health, now):
    for _ in range(PASSES[health.degraded.cause]):
        if health.degraded.cause == "mismatches":
            health.comparison(agreed=True, now=now)
        elif health.degraded.cause == "benchmark":
            health.benchmark(passed=True, cause="", now=now)
        else:
            health.canary(passed=True, now=now)
        now += NEXT_PASS_S


@pytest.mark.parametrize("cause", PASSES)
def test_there_is_a_way_back_from_each_cause(cause):
    health = degraded(cause)
    come_back(health, 300.0)
    assert health.degraded is None
    assert health.next_probe_at is None
    assert not health.watched


def test_a_right_echo_does_not_bring_a_swapped_model_back():
    health = degraded("mismatches")
    for _ in range(10):
        health.canary(passed=True, now=300.0)
    assert health.suspect


def test_a_node_without_peers_left_comes_back_by_canaries_in_their_place():
    health = degraded("mismatches")
    assert [health.stand_in(passed=True, now=300.0) for _ in range(3)] == [False, False, True]


def test_one_wrong_answer_on_the_way_back_starts_it_anew():
    health = degraded("canaries")
    health.canary(passed=True, now=300.0)
    health.canary(passed=False, now=360.0)
    health.canary(passed=True, now=960.0)
    assert health.degraded is not None


def test_who_falls_again_soon_waits_longer_and_who_falls_much_later_does_not():
    health = degraded("faults")
    come_back(health, 300.0)
    for _ in range(FAULTS):
        health.job("failed", 400.0)
    assert health.next_probe_at == 400.0 + 2 * FIRST_PROBE_S
    come_back(health, 1000.0)
    later = 1000.0 + CALM_S + 1
    for _ in range(FAULTS):
        health.job("failed", later)
    assert health.next_probe_at == later + FIRST_PROBE_S


def test_a_canary_that_could_not_be_given_is_tried_again_and_held_against_nobody():
    health = degraded("faults")
    health.unanswered_probe(300.0)
    assert health.next_probe_at == 300.0 + NEXT_PASS_S
    come_back(health, 400.0)
    assert health.degraded is None


def test_a_restart_of_the_coordinator_forgives_nothing():
    events = [(float(at), "customer", "failed") for at in range(FAULTS)]
    assert Health.recalled(events).degraded is not None
    assert Health.recalled([*events, (400.0, "canary", "completed")]).degraded is None
    lost = [(float(at), "shadow", "mismatched") for at in range(MISMATCHES)]
    assert Health.recalled(lost).suspect


def test_empty_answers_ask_for_a_canary_and_are_no_fault():
    health = Health()
    assert [health.empty() for _ in range(4)] == [False, False, True, True]
    assert health.degraded is None
    health.job("completed", 1.0)
    assert health.empty() is False


async def test_faults_that_another_coordinator_dated_into_the_future_keep_no_node_away_for_longer():
    node, wall_s = Node("N-1", b"key"), time.time()
    ahead = [Outcome(node.node_id, "customer", "failed", wall_s + 3600.0, None, None) for _ in range(FAULTS)]
    ScoreKeeper(None, Registry(15.0))._recalled(node, ahead, [], wall_s)
    assert node.health.degraded is not None
    assert node.health.next_probe_at is not None
    assert node.health.next_probe_at <= time.monotonic() + FIRST_PROBE_S
