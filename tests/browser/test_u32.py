"""Operands from seeds and exact products."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.browser.u32 import product, seeded

sizes = st.integers(1, 40)


@given(rows=sizes, inner=sizes, columns=sizes, seed=st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_products_are_numpys_own(rows, inner, columns, seed):
    a = seeded(seed, "a", range(rows), range(inner), inner)
    b = seeded(seed, "b", range(inner), range(columns), columns)
    assert np.array_equal(product(a, b), a @ b)


def test_the_largest_numbers_do_not_lose_a_bit():
    a = np.full((3, 5000), 0xFFFFFFFF, dtype=np.uint32)
    assert np.array_equal(product(a, a.T.copy()), a @ a.T)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_part_of_a_seeded_operand_is_that_part_of_the_whole(data):
    height, width = data.draw(sizes), data.draw(sizes)
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    seed, side = data.draw(st.integers(0, 2**64 - 1)), data.draw(st.sampled_from("ab"))
    whole = seeded(seed, side, range(height), range(width), width)
    part = seeded(seed, side, range(top, height), range(left, width), width)
    assert np.array_equal(part, whole[top:, left:])


def test_two_seeds_and_two_sides_have_nothing_in_common():
    made = [seeded(seed, side, range(64), range(64), 64) for seed in (1, 2, 1 << 32) for side in "ab"]
    for number, one in enumerate(made):
        assert len(np.unique(one)) > 4000
        assert all((one == other).mean() < 0.01 for other in made[:number])
