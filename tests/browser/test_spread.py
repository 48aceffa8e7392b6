"""Stages are spread evenly over tabs as they come and go, and the moving ends."""

from hypothesis import given
from hypothesis import strategies as st

from brain_coord.browser.spread import next_move, surplus

STAGES = ["m#1/4", "m#2/4", "m#3/4", "m#4/4"]


def anybody(held):
    return lambda stage: sorted(tab for tab, stages in held.items() if stage not in stages)


def settle(held, wanted):
    """Move and let go until nothing is left to do."""
    for steps in range(100):
        for tab, stage in surplus(held, wanted):
            held[tab] = held[tab] - {stage}
        move = next_move(held, anybody(held))
        if move is None:
            return steps
        stage, tab = move
        held[tab] = held[tab] | {stage}
    raise AssertionError("it never ends")


def test_a_tab_that_comes_takes_stages_from_one_that_holds_all():
    held = {"A": frozenset(STAGES), "B": frozenset()}
    settle(held, dict.fromkeys(STAGES, 1))
    assert sorted(map(len, held.values())) == [2, 2]
    assert held["A"] | held["B"] == set(STAGES)


def test_what_is_even_stays_where_it_is():
    assert next_move({"A": frozenset(STAGES[:2]), "B": frozenset(STAGES[2:3])}, anybody({})) is None
    assert next_move({"A": frozenset(STAGES[:1]), "B": frozenset()}, anybody({})) is None
    assert next_move({}, anybody({})) is None


def test_a_tab_that_cannot_take_a_stage_is_not_asked():
    held = {"A": frozenset(STAGES), "B": frozenset(), "C": frozenset()}
    assert next_move(held, lambda stage: ["C"] if stage == STAGES[2] else []) == (STAGES[2], "C")
    assert next_move(held, lambda stage: []) is None


def test_replicas_that_were_wanted_are_not_let_go_and_a_lone_stage_is_kept():
    held = {"A": frozenset(STAGES[:2]), "B": frozenset(STAGES[:1])}
    assert surplus(held, {STAGES[0]: 2, STAGES[1]: 1}) == []
    assert surplus(held, {STAGES[0]: 1, STAGES[1]: 1}) == [("A", STAGES[0])]
    assert surplus({"A": frozenset(STAGES[:1]), "B": frozenset(STAGES[:1])}, {STAGES[0]: 1}) == []


@given(
    st.dictionaries(st.sampled_from("ABCDE"), st.frozensets(st.sampled_from(STAGES)), min_size=1),
    st.integers(1, 3),
)
def test_it_always_ends_and_no_stage_is_ever_lost(held, replicas):
    before = frozenset().union(*held.values())
    settle(held, dict.fromkeys(STAGES, replicas))
    assert frozenset().union(*held.values()) == before
