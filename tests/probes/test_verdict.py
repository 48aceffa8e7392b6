"""Who is wrong when two differ."""

import pytest

from brain_coord.probes.verdict import Given, judge

SAME = "the same long answer that both of them gave to one and the same question"
OTHER = "something else entirely came out of this machine for reasons unknown to us"
THIRD = "a completely different third text about gardens, lanterns and violins at night"


def verdict(*texts):
    return judge([Given(name, text) for name, text in zip("ABC", texts, strict=False)])


def test_two_that_agree_are_both_right():
    assert verdict(SAME, SAME).matched == ("A", "B")


def test_two_that_differ_prove_nothing():
    assert not verdict(SAME, OTHER).decided


@pytest.mark.parametrize(
    ("texts", "liar"), [((SAME, SAME, OTHER), "C"), ((SAME, OTHER, SAME), "B"), ((OTHER, SAME, SAME), "A")]
)
def test_the_third_settles_it_and_only_the_liar_pays(texts, liar):
    found = verdict(*texts)
    assert found.mismatched == (liar,)
    assert set(found.matched) == {"A", "B", "C"} - {liar}


def test_three_that_all_differ_say_nothing_about_anybody():
    found = verdict(SAME, OTHER, THIRD)
    assert (found.matched, found.mismatched) == ((), ())
