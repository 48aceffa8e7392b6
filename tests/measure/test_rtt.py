"""Round trips."""

from brain_coord.measure.rtt import MAX_OUTSTANDING, RttEstimator


def test_the_median_of_recent_pings_counts():
    rtt = RttEstimator()
    for number, trip_s in enumerate((0.020, 0.021, 0.500, 0.019, 0.020)):
        rtt.ping(number, 10.0 * number)
        rtt.pong(number, 10.0 * number + trip_s)
    assert rtt.rtt_ms == 20.0
    assert rtt.samples == 5


def test_before_the_first_pong_it_is_unknown():
    rtt = RttEstimator()
    rtt.ping(1, 0.0)
    assert rtt.rtt_ms is None


def test_a_pong_that_was_not_asked_for_or_comes_twice_is_nothing():
    rtt = RttEstimator()
    assert rtt.pong(77, 0.0) is None
    rtt.ping(5, 1.0)
    assert rtt.pong(5, 1.01) is not None
    assert rtt.pong(5, 1.02) is None
    assert rtt.samples == 1


def test_a_ping_across_a_stall_of_our_own_teaches_nothing():
    rtt = RttEstimator()
    rtt.ping(5, 1.0)
    assert rtt.pong(5, 9.0, stalled=True) is None
    assert rtt.rtt_ms is None


def test_a_node_that_never_answers_costs_no_memory():
    rtt = RttEstimator()
    for number in range(1000):
        rtt.ping(number, float(number))
    assert rtt.pong(0, 1000.0) is None
    assert rtt.pong(999, 1000.0) is not None
    assert MAX_OUTSTANDING < 20


def test_time_that_ran_backwards_gives_no_negative_round_trip():
    rtt = RttEstimator()
    rtt.ping(1, 5.0)
    assert rtt.pong(1, 4.0) == 0.0
