"""Nodes that were here a moment ago are waited for, and not for long."""

from brain_coord.classes.returning import REMEMBERED_S, Returning


def test_a_node_that_lost_its_link_is_expected_back_for_a_while():
    returning = Returning(started=-1000.0)
    returning.left("N-1", 0.0, draining=False)
    assert returning.expected(REMEMBERED_S - 1) == {"N-1"}
    assert returning.expected(REMEMBERED_S) == set()


def test_a_node_that_drained_left_on_purpose():
    returning = Returning(started=-1000.0)
    returning.left("N-1", 0.0, draining=False)
    returning.left("N-1", 1.0, draining=True)
    assert returning.expected(2.0) == set()


def test_after_a_start_everybody_may_be_on_the_way():
    returning = Returning(started=0.0)
    assert returning.everybody(REMEMBERED_S - 1)
    assert not returning.everybody(REMEMBERED_S)
