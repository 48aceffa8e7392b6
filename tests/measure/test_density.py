"""Tokens reported for text, beside what peers report for the same model."""

import pytest

from brain_coord.measure.density import CROWD, TokenDensity


def fleet(**bytes_per_token):
    density = TokenDensity()
    for node_id, each in bytes_per_token.items():
        for _ in range(5):
            density.add(node_id, "m", 100, round(100 * each))
    return density


def test_nodes_that_report_alike_keep_all_of_their_speed():
    density = fleet(a=4.3, b=4.4, c=4.2)
    assert [density.factor(node, "m") for node in "abc"] == [1.0, 1.0, 1.0]


def test_inflating_usage_gains_nothing_beside_two_peers():
    density = fleet(a=4.3, b=4.4, liar=1.1)
    # Four times the tokens, a quarter of the speed.
    assert density.factor("liar", "m") * 4 == pytest.approx(1.05, rel=0.05)
    assert density.factor("a", "m") == 1.0


def test_one_peer_is_no_measure_for_another():
    density = fleet(a=4.3, liar=1.1)
    assert density.factor("liar", "m") == density.factor("a", "m") == 1.0


def test_one_trusted_node_is():
    assert fleet(a=4.3, liar=1.1).factor("liar", "m", trusted={"a"}) < 0.3


def test_a_benchmark_of_which_there_is_nothing_to_compare_is_bounded_by_what_prose_holds():
    density = TokenDensity()
    density.add("only", "m", 96, 96, "benchmark")
    assert density.factor("only", "m", "benchmark") == pytest.approx(1 / 3)
    assert density.factor("only", "m") == 1.0


def test_in_a_crowd_the_median_of_all_is_the_measure():
    density = fleet(**{f"n{number}": 4.3 for number in range(CROWD + 4)}, liar=1.0)
    assert density.factor("liar", "m") < 0.3
    assert density.factor("n1", "m") == 1.0


def test_a_new_engine_starts_anew():
    density = fleet(a=4.3, b=4.4, liar=1.1)
    density.forget("liar")
    assert density.factor("liar", "m") == 1.0


def test_in_a_crowd_the_trusted_ones_alone_are_the_measure():
    density = fleet(**{f"liar{number}": 1.0 for number in range(CROWD + 4)}, own1=4.3, own2=4.4)
    assert density.factor("liar3", "m", trusted={"own1", "own2", "absent"}) < 0.3
    assert density.factor("own1", "m", trusted={"own1", "own2", "absent"}) == 1.0
