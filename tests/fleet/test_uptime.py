"""Connection time, counted only while the coordinator was up."""

from brain_coord.fleet.uptime import PERIOD_S, RETURN_S, UptimeMeter

WALL = 1_800_000_000.0


def test_time_goes_to_those_that_are_connected_and_is_observed_for_all():
    meter = UptimeMeter()
    assert meter.tick([("a", True), ("b", True)], 0.0, WALL) == []
    meter.tick([("a", True), ("b", False)], 10.0, WALL)
    meter.tick([("a", False), ("b", False)], 20.0, WALL)
    assert {(each.node_id, each.connected_s, each.observed_s) for each in meter.flush()} == {
        ("a", 10.0, 20.0),
        ("b", 0.0, 20.0),
    }
    assert meter.flush() == []


def test_nodes_get_time_to_come_back_after_the_coordinators_own_start():
    meter = UptimeMeter()
    for second in range(0, int(RETURN_S), 10):
        assert meter.tick([("late", False)], float(second), WALL) == []
    (counted,) = meter.tick([("late", False)], RETURN_S, WALL)
    assert (counted.connected_s, counted.observed_s) == (0.0, 10.0)


def test_a_coordinator_that_stood_still_blames_nobody_for_the_gap():
    meter = UptimeMeter()
    meter.tick([("a", True)], 0.0, WALL)
    meter.tick([("a", False)], 9000.0, WALL)
    (day,) = meter.flush()
    assert day.observed_s == 2 * PERIOD_S


def test_a_step_of_the_wall_clock_only_names_another_day():
    meter = UptimeMeter()
    meter.tick([("a", True)], 0.0, WALL)
    meter.tick([("a", True)], 10.0, WALL - 90_000)
    meter.tick([("a", True)], 20.0, WALL + 90_000)
    days = meter.flush()
    assert len({day.day for day in days}) == 2
    assert sum(day.connected_s for day in days) == 20.0
