"""Slots are what a node was seen to bear, whatever it claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.measure.slots import BORNE_SHARE, LEAST, START, BorneSlots, Load


def run(borne, claimed, speed_at, streams=40):
    """Streams one after the other under as many jobs as the node is given; `speed_at` is the share kept at a load."""
    for _ in range(streams):
        load = min(borne.limit, claimed)
        borne.began(load, claimed)
        load = min(borne.limit, claimed)
        borne.completed(load, speed_at(load), claimed)
    return min(borne.limit, claimed)


def test_a_claim_alone_is_worth_the_first_slots_only():
    assert min(BorneSlots().limit, 64) == START
    assert min(BorneSlots().limit, 3) == 3


def test_an_engine_that_batches_well_gets_all_that_it_claims():
    assert run(BorneSlots(), 64, lambda load: 1 / (1 + load / 64)) == 64


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_an_engine_of_few_lanes_ends_where_its_jobs_keep_a_quarter_of_their_speed(lanes):
    borne = BorneSlots()
    given = run(borne, 64, lambda load: min(1.0, lanes / load))
    assert given <= lanes / BORNE_SHARE
    assert given >= lanes
    assert run(borne, 1000, lambda load: min(1.0, lanes / load)) <= lanes / BORNE_SHARE + 1, (
        "a larger claim adds nothing"
    )


def test_after_a_collapse_only_completed_streams_raise_the_limit_one_by_one():
    borne = BorneSlots()
    for _ in range(3):
        borne.completed(START, 0.05, 64)
    fell_to = borne.limit
    assert fell_to < START
    assert not borne.began(64, 64)
    assert borne.limit == fell_to
    for _ in range(3):
        borne.completed(fell_to, 0.9, 64)
    assert borne.limit == fell_to + 1


def test_streams_that_had_the_node_to_themselves_say_nothing():
    borne = BorneSlots()
    assert not any(borne.completed(1.0, 0.01, 64) for _ in range(20))
    assert borne.limit == START


def test_one_slow_stream_among_good_ones_changes_nothing():
    borne = BorneSlots()
    changed = [borne.completed(4, 0.1 if number % 4 == 0 else 0.9, 8) for number in range(40)]
    assert not any(changed)


def test_answers_that_tell_no_speed_speak_for_more_slots_until_a_collapse_and_not_after_it():
    borne = BorneSlots()
    for _ in range(9):
        borne.completed(borne.limit, None, 512, exact=False)
    assert borne.limit == 8 * START, "answers in one piece, or too quick to be timed"
    for _ in range(3):
        borne.completed(borne.limit, 0.01, 512, exact=False)
    fell_to = borne.limit
    assert borne.collapsed
    for share in (None, 0.9):
        for _ in range(9):
            borne.completed(fell_to, share, 512, exact=False)
    assert borne.limit == fell_to


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(0, 0.2)), min_size=3))
def test_nothing_that_is_slow_raises_the_limit(streams):
    borne, before = BorneSlots(), START
    for load, share in streams:
        borne.completed(load, share, 64)
        assert LEAST <= borne.limit <= before
        before = borne.limit


def test_the_load_is_the_mean_number_of_jobs():
    load = Load()
    load.change(1, 100.0)
    mark = load.until(100.0)
    load.change(3, 102.0)
    load.change(2, 103.0)
    load.change(1, 104.0)
    assert load.mean(mark, 100.0) == pytest.approx((2 * 1 + 3 + 2) / 4)
