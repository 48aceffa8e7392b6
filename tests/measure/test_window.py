"""Medians over recent samples."""

from random import Random
from statistics import median

from brain_coord.measure.window import MAX_AGE_S, SAMPLES, MedianWindow


def window(*values):
    made = MedianWindow()
    for number, value in enumerate(values):
        made.add(value, float(number))
    return made


def test_before_the_first_sample_the_value_is_unknown():
    assert MedianWindow().value is None


def test_a_stall_or_a_lie_among_honest_samples_moves_nothing_far():
    assert window(50, 51, 49, 1, 50, 4000).value == 50


def test_only_recent_samples_count():
    made = window(*[10] * SAMPLES, *[90] * SAMPLES)
    assert (made.value, made.samples) == (90, SAMPLES)


def test_one_slow_day_does_not_follow_a_node_for_ever():
    made = window(5, 5, 5)
    assert made.expire(MAX_AGE_S + 10)
    assert made.value is None
    made.add(50, MAX_AGE_S + 11)
    assert made.value == 50


def test_an_upper_bound_teaches_only_where_it_contradicts():
    made = window(50, 50, 50)
    assert not made.at_most(80, 3.0)
    assert made.samples == 3
    assert made.at_most(20, 4.0)
    assert made.samples == 4
    assert not MedianWindow().at_most(20, 0.0)


def test_a_speed_counts_as_reached_once_so_many_samples_reached_it():
    assert window(3, 100, 3, 100, 3, 100).reached(3) == 100
    assert window(500, 3, 3).reached(2) == 3, "one burst is no speed"
    assert window(500).reached(2) is None


def test_what_is_kept_in_order_is_what_came():
    rng, made = Random(3), window()
    for step in range(4 * SAMPLES):
        made.add(rng.choice((1.5, 2.0, rng.random())), step * MAX_AGE_S / (SAMPLES - 9))
        assert made.ordered == sorted(made.values)
        assert made.value == median(made.values)
    copied = MedianWindow.of([9.0, *made.values] * 2, 1.0)
    assert (copied.samples, copied.value) == (SAMPLES, median(copied.values))
