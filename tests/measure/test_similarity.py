"""When two greedy answers can come from one model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.measure.similarity import COMPARED_WORDS, agree, words_of

LONG = "the carpet stood beside the canyon because it was a natural feature of the old canyon and nobody had moved it"


def test_the_same_text_agrees_whatever_its_spaces_and_capitals():
    assert agree("The Answer  is:\n42.", "the answer is: 42.")


def test_texts_that_part_after_a_while_agree():
    assert agree(LONG, LONG.replace("a natural", "the only").replace("nobody", "no one"))


def test_a_short_answer_agrees_by_half_of_it():
    assert agree("blue green red", "blue green yellow")
    assert not agree("blue green red white", "blue yellow black pink")


def test_texts_that_part_at_once_agree_only_by_nearly_the_same_words():
    assert agree("so the cat sat on the mat", "the cat sat on the mat so")
    assert not agree(
        LONG, "a canyon is a deep valley, and a carpet is something that people put on the floor of a room"
    )


def test_nothing_agrees_with_nothing_alone():
    assert agree("", "  ")
    assert not agree("", "yes")


def test_only_the_beginning_is_looked_at():
    assert len(words_of("word " * 500)) == COMPARED_WORDS


@given(st.text(), st.text())
def test_it_is_symmetric_and_everything_agrees_with_itself(one, other):
    assert agree(one, other) == agree(other, one)
    assert agree(one, one)


@pytest.mark.parametrize("answer", ["yes", "I can not help with that.", "42"])
def test_a_canned_answer_to_everything_does_not_agree(answer):
    assert not agree(answer, LONG)
