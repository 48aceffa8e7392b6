"""When to try the coordinator again."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_node.link.backoff import Backoff, BackoffPolicy

POLICY = BackoffPolicy()


def attempts_of(seed: int, lost_at: float, back_at: float) -> list[float]:
    """When one agent tries, from the loss of its link until it is back; on a fake clock."""
    backoff = Backoff(POLICY, random.Random(seed).random)
    backoff.up(lost_at - 1000)
    now, tries = lost_at, []
    while True:
        now += backoff.down(now)
        tries.append(now)
        if now >= back_at:
            return tries


@pytest.mark.case("D-03")
def test_a_fleet_that_lost_its_coordinator_together_does_not_come_back_together():
    tries = [attempts_of(seed, lost_at=0.0, back_at=10.0) for seed in range(300)]
    for name, times in (("first", [t[0] for t in tries]), ("last", [t[-1] for t in tries])):
        buckets = Counter(int(time * 10) for time in times)
        assert max(buckets.values()) <= 30, name


@pytest.mark.case("D-03")
def test_every_agent_is_back_within_the_window_that_its_back_off_had_reached():
    assert all(attempts_of(seed, 0.0, 10.0)[-1] <= 10.0 + 20.25 for seed in range(300))


@given(seed=st.integers(0, 2**32), failures=st.integers(1, 60))
def test_delays_are_jittered_capped_and_never_nothing(seed, failures):
    backoff = Backoff(POLICY, random.Random(seed).random)
    delays = [backoff.down(0.0) for _ in range(failures)]
    assert all(POLICY.window_s / 4 <= delay <= POLICY.cap_s for delay in delays)


def test_the_window_grows_up_to_the_cap():
    backoff = Backoff(POLICY, lambda: 0.999999)
    assert [round(backoff.down(0.0)) for _ in range(9)] == [4, 6, 9, 13, 20, 30, 46, 60, 60]


@pytest.mark.case("D-03")
def test_a_link_that_dies_young_does_not_reset_the_back_off():
    backoff = Backoff(POLICY, lambda: 0.999999)
    for n in range(4):
        backoff.up(n * 100.0)
        delay = backoff.down(n * 100.0 + 5.0)
    assert round(delay, 1) == 13.5


def test_a_link_that_stayed_up_resets_it():
    backoff = Backoff(POLICY, lambda: 0.999999)
    for _ in range(5):
        backoff.down(0.0)
    backoff.up(100.0)
    assert round(backoff.down(100.0 + POLICY.stable_after_s)) == POLICY.window_s
    assert backoff.failures == 1


@pytest.mark.case("D-03")
def test_what_the_coordinator_asked_for_is_never_undercut():
    for draw in (0.0, 0.5, 0.999):
        assert Backoff(POLICY, lambda draw=draw: draw).down(0.0, retry_after_s=17.0) >= 17.0


def test_a_hundred_nodes_told_the_same_retry_after_still_spread():
    delays = [Backoff(POLICY, random.Random(seed).random).down(0.0, retry_after_s=20.0) for seed in range(100)]
    assert max(delays) - min(delays) > 4.0


def test_an_absurd_retry_after_does_not_take_the_node_away_for_ever():
    assert Backoff(POLICY, lambda: 0.5).down(0.0, retry_after_s=1e9) <= 1.25 * POLICY.longest_retry_after_s + 1


@pytest.mark.case("F-06")
def test_a_fault_that_time_does_not_mend_is_not_retried_fast():
    assert Backoff(POLICY, lambda: 0.0).down(0.0, slow=True) >= 7.0


def test_the_very_first_attempt_is_spread_too():
    assert [Backoff(POLICY, lambda d=d: d).first_delay_s() for d in (0.0, 0.9)] == [0.0, pytest.approx(0.45)]


def test_links_that_the_coordinator_asked_to_begin_anew_make_no_pause_longer():
    backoff = Backoff(POLICY, lambda: 1.0)
    for now in range(5):
        backoff.up(float(now))
        assert backoff.asked_s(float(now)) == POLICY.window_s
    assert backoff.failures == 0
    assert backoff.down(5.0) == POLICY.window_s
