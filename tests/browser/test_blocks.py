"""How products are cut."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.browser.blocks import OPERAND_WORDS, RESULT_WORDS, UNIT_OPERATIONS, cut

sizes = st.one_of(st.integers(1, 70), st.integers(1, 4096))


@given(rows=sizes, inner=sizes, columns=sizes, tabs=st.integers(0, 50))
@settings(max_examples=150, deadline=None)
def test_the_units_cover_the_result_once_and_none_is_too_large(rows, inner, columns, tabs):
    seen = np.zeros((rows, columns), dtype=np.uint8)
    for block in cut(rows, inner, columns, tabs):
        seen[block.row : block.row + block.rows, block.column : block.column + block.columns] += 1
        assert block.rows * block.columns <= RESULT_WORDS
        assert block.rows * inner <= max(inner, OPERAND_WORDS)
        assert block.columns * inner <= max(inner, OPERAND_WORDS)
        assert block.operations(inner) <= UNIT_OPERATIONS[1] or block.rows * block.columns == 1
    assert (seen == 1).all()


def test_every_tab_finds_several_units_in_a_large_product():
    assert len(cut(1024, 1024, 1024, 3)) >= 9


def test_a_small_product_is_one_unit():
    assert len(cut(64, 64, 64, 3)) == 1
