"""Tokens a second by an engine's own counter."""

import aiohttp
import pytest

from brain_node.agent.token_rate import TokenRate, generated_tokens
from tests.support.scripted_server import ScriptedServer, plain, saying


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


@pytest.mark.parametrize(
    ("metrics", "total"),
    [
        (
            b'vllm:generation_tokens_total{model_name="a"} 7.0\nvllm:generation_tokens_total{model_name="b"} 1e3\n',
            1007.0,
        ),
        (b"vllm:generation_tokens_total 3", 3.0),
        (b"vllm:generation_tokens_total 1e+\n", None),
        (b"vllm:generation_tokens_total ...\n", None),
        (b"nothing of the kind", None),
    ],
)
async def test_a_counter_that_is_no_number_is_none(metrics, total):
    async with ScriptedServer(saying(plain(metrics))) as server, aiohttp.ClientSession() as http:
        assert await generated_tokens(http, server.url) == total
