"""What is kept never grows beyond its bound."""

from brain_coord.routing.bounded import MOST, Bounded


def test_it_begins_anew_when_it_is_full():
    kept: Bounded[int, int] = Bounded()
    for number in range(MOST):
        assert kept.keep(number, -number) == -number
    assert len(kept) == MOST
    kept.keep(MOST, 0)
    assert dict(kept) == {MOST: 0}
