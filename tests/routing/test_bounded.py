"""What is kept never grows beyond its bound."""

import pytest

from brain_coord.routing.bounded import MOST, Bounded


@pytest.mark.parametrize(("kept", "most"), [(Bounded(), MOST), (Bounded(2), 2)])
def test_it_begins_anew_when_it_is_full(kept: Bounded[int, int], most: int):
    for number in range(most):
        assert kept.keep(number, -number) == -number
    assert len(kept) == most
    kept.keep(most, 0)
    assert dict(kept) == {most: 0}
