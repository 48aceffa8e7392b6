"""Tokens a second by an engine's own counter."""

import pytest

from brain_node.agent.token_rate import TokenRate


@pytest.mark.parametrize(
    ("readings", "rate"),
    [
        ([], None),
        ([(100.0, 0.0)], None),
        ([(100.0, 0.0), (150.0, 5.0)], 10.0),
        ([(100.0, 0.0), (100.0, 5.0)], 0.0),
        ([(100.0, 0.0), (None, 5.0), (200.0, 10.0)], None),
        ([(100.0, 0.0), (3.0, 5.0)], None),
        ([(100.0, 0.0), (3.0, 5.0), (23.0, 10.0)], 4.0),
    ],
)
def test_the_rate_between_the_last_two_readings(readings, rate):
    meter = TokenRate()
    for total, now in readings:
        meter.observe(total, now)
    assert meter.tokens_s == rate
