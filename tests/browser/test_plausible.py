"""Which answers come too soon to be true."""

import pytest

from brain_coord.browser.plausible import SpeedRules, too_fast

RULES = SpeedRules(most_ops_s=1e12, most_times=16)


@pytest.mark.parametrize(
    ("operations", "elapsed_s", "known_ops_s", "believed"),
    [
        (1e9, 1.0, None, True),
        (1e9, 1e-4, None, False),  # ten times what any hardware does
        (1e9, 1.0, 1e8, True),  # ten times its challenge: larger work hides the way better
        (1e9, 0.1, 1e8, False),  # a hundred times
        (1e9, 0.0, None, False),
        (1e3, 0.001, 1e9, True),  # little work is slow work
    ],
)
def test_speed_is_believed_within_bounds(operations, elapsed_s, known_ops_s, believed):
    assert (too_fast(int(operations), elapsed_s, known_ops_s, RULES) is None) is believed
