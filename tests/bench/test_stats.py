"""What the bench calls a difference, and how it counts."""

import pytest

from scripts.bench.stats import Estimate, percentile, ratio
from scripts.bench.wire import WORD, Ask, number_after, word_begun


def test_an_estimate_is_the_mean_and_the_distance_between_the_extremes():
    assert Estimate.of([1.0, 2.0, 6.0]) == Estimate(3.0, 5.0, 3)
    assert Estimate.of([]) is None


def test_what_a_router_adds_is_the_difference_of_means_with_both_spreads():
    assert Estimate(5.0, 1.0, 3) - Estimate(2.0, 0.5, 4) == Estimate(3.0, 1.5, 3)


@pytest.mark.parametrize(("ours", "conclusive"), [(10.0, False), (11.5, False), (13.0, True), (7.0, True)])
def test_a_difference_inside_the_spread_is_inconclusive(ours, conclusive):
    found = ratio(Estimate(ours, 1.0, 3), Estimate(10.0, 2.0, 3))
    assert (found.value, found.conclusive) == (ours / 10.0, conclusive)


def test_nothing_is_divided_by_what_was_not_measured():
    assert ratio(None, Estimate(1.0, 0.0, 3)) is None
    assert ratio(Estimate(1.0, 0.0, 3), Estimate(0.0, 0.0, 3)) is None


def test_percentiles_are_values_that_were_there():
    assert percentile([5.0, 1.0, 3.0], 0.5) == 3.0
    assert percentile([5.0, 1.0, 3.0], 0.99) == 5.0
    assert percentile([], 0.5) is None


def test_a_body_is_as_large_as_was_asked_and_tells_the_engine_what_to_do():
    body = Ask(events=16, rate=100, body_bytes=4096).body("m")
    assert len(body) >= 4096
    assert number_after(body, b"bench-events=") == 16
    assert number_after(body, b"bench-rate=") == 100
    assert number_after(body, b"absent=") is None


def test_a_word_that_is_cut_between_two_pieces_is_counted_once():
    data = b"one " + WORD + b" two " + WORD + b" end"
    for cut in range(len(data)):
        first, second = data[:cut], data[cut:]
        assert first.count(WORD) + (word_begun(first) + second).count(WORD) == 2, cut
