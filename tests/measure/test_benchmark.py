"""The rules of the join benchmark."""

import pytest

from brain_coord.measure.benchmark import (
    AGE_SPREAD,
    MAX_AGE_S,
    benchmark_body,
    benchmark_prompt,
    compute_class,
    is_due,
    measured_tokens,
)


@pytest.mark.parametrize(
    ("tok_s", "name"),
    [
        (3, "EDGE"),
        (11.999, "EDGE"),
        (12, "CONSUMER"),
        (39.9, "CONSUMER"),
        (40, "PRO"),
        (89.9, "PRO"),
        (90, "DATACENTER"),
    ],
)
def test_the_compute_classes(tok_s, name):
    assert compute_class(tok_s, mock=False) == name


def test_a_mock_is_never_classed():
    assert compute_class(500, mock=True) is None


def test_no_prompt_comes_twice_so_no_answer_can_be_stored():
    assert len({benchmark_prompt() for _ in range(500)}) == 500


def test_the_length_is_fixed_where_the_engine_can():
    body = benchmark_body("m", "p", 96, ignore_eos=True)
    assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (96, True, True)
    assert "ignore_eos" not in benchmark_body("m", "p", 96, ignore_eos=False)


def test_it_is_due_when_there_is_none_or_engine_or_hardware_or_model_changed():
    assert is_due(None, None, "f", 100.0)
    assert is_due(99.0, "g", "f", 100.0)
    assert not is_due(99.0, "f", "f", 100.0)


def test_it_is_due_again_after_a_day_and_not_for_a_whole_fleet_at_once():
    day = MAX_AGE_S
    ages = {
        node: next(a for a in range(int(day), int(day * 1.2), 60) if is_due(0.0, "f", "f", a, node_id=node))
        for node in "abcdefgh"
    }
    assert min(ages.values()) >= day
    assert max(ages.values()) <= day * (1 + AGE_SPREAD) + 60
    assert len(set(ages.values())) > 5


def test_it_is_due_after_a_long_absence():
    assert is_due(50.0, "f", "f", 100.0, returned_s=60.0)
    assert not is_due(70.0, "f", "f", 100.0, returned_s=60.0)


def test_a_benchmark_answer_never_has_more_tokens_than_were_asked_for_or_its_prose_can_hold():
    assert measured_tokens(96, 96, 420) == 96
    assert measured_tokens(900, 96, 420) == 96
    assert measured_tokens(96, 96, 60) == 20
    assert measured_tokens(None, 96, 400) == 96
    assert measured_tokens(None, 96, 200) == 50
