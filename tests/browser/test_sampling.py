"""How the next token is drawn."""

from collections import Counter

import numpy as np
import pytest

from brain_coord.browser.sampling import Sampler, Top

TOP = Top(np.array([7, 3, 9, 1], dtype=np.uint32), np.array([2.0, 1.0, 0.0, -4.0], dtype=np.float32))


def drawn(sampler: Sampler, count: int = 4000) -> dict[int, float]:
    counts = Counter(sampler.draw(TOP) for _ in range(count))
    return {token: number / count for token, number in counts.items()}


def test_without_temperature_the_best_token_is_drawn_and_ties_go_to_the_lower_id():
    assert Sampler(temperature=0.0).draw(TOP) == 7
    tie = Top(np.array([7, 3], dtype=np.uint32), np.array([2.0, 2.0], dtype=np.float32))
    assert Sampler(temperature=0.0).draw(tie) == 3


def test_tokens_are_drawn_as_often_as_their_logits_say():
    shares = np.exp([2.0, 1.0, 0.0, -4.0]) / np.exp([2.0, 1.0, 0.0, -4.0]).sum()
    got = drawn(Sampler(seed=1))
    for token, share in zip((7, 3, 9, 1), shares, strict=True):
        assert got.get(token, 0.0) == pytest.approx(share, abs=0.03)


def test_temperature_sharpens_and_flattens():
    assert drawn(Sampler(temperature=0.3, seed=1))[7] > drawn(Sampler(seed=1))[7] > drawn(Sampler(2.0, seed=1))[7]


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, {7}), (0.8, {7, 3}), (0.0, {7}), (0.95, {7, 3, 9})])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, kept):
    assert set(drawn(Sampler(top_p=top_p, seed=2), 1500)) == kept


def test_the_same_seed_draws_the_same():
    one, two = Sampler(seed=5), Sampler(seed=5)
    assert [one.draw(TOP) for _ in range(50)] == [two.draw(TOP) for _ in range(50)]
    assert [Sampler(seed=6).draw(TOP) for _ in range(50)] != [one.draw(TOP) for _ in range(50)]


def test_top_k_keeps_so_many():
    assert set(drawn(Sampler(top_k=2, seed=2), 1500)) == {7, 3}
    assert set(drawn(Sampler(top_k=1, seed=2), 50)) == {7}
