"""The check that decides whether a tab's answer counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.browser.product_check import METHOD, CheckMethod, fault_in
from brain_coord.browser.u32 import product, seeded

A = seeded(7, "a", range(48), range(64), 64)
B = seeded(7, "b", range(64), range(40), 40)
C = product(A, B)
TRUST_NO_SPOTS = CheckMethod(spot_rows=0)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_a_right_product_always_stands(seed):
    assert fault_in(A, B, C, np.random.default_rng(seed)) is None


@given(
    row=st.integers(0, 47), column=st.integers(0, 39), flip=st.integers(1, 2**32 - 1), seed=st.integers(0, 2**32 - 1)
)
@settings(max_examples=200, deadline=None)
def test_one_changed_word_is_always_seen(row, column, flip, seed):
    wrong = C.copy()
    wrong[row, column] ^= np.uint32(flip)
    assert fault_in(A, B, wrong, np.random.default_rng(seed), TRUST_NO_SPOTS) is not None


def test_the_hardest_error_passes_one_round_half_the_time_and_never_all():
    """The error 2^31 vanishes against every even number, so a round is worth one bit and no more."""
    wrong = C.copy()
    wrong[3, 5] ^= np.uint32(1 << 31)
    rng = np.random.default_rng(1)
    one_round = CheckMethod(rounds=1, spot_rows=0)
    missed = sum(fault_in(A, B, wrong, rng, one_round) is None for _ in range(600))
    assert 230 < missed < 370
    assert all(fault_in(A, B, wrong, rng, TRUST_NO_SPOTS) is not None for _ in range(300))


def test_enough_rounds_for_the_promised_bound():
    assert 0.5**METHOD.rounds < 2**-20


@pytest.mark.parametrize("change", ["zeros", "another product", "a swapped row"])
def test_answers_that_were_not_computed_are_seen(change):
    wrong = {
        "zeros": np.zeros_like(C),
        "another product": product(seeded(8, "a", range(48), range(64), 64), B),
        "a swapped row": C[[1, 0, *range(2, 48)]],
    }[change]
    assert fault_in(A, B, wrong, np.random.default_rng(2)) is not None
