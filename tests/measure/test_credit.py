"""What a node is credited with: exact for honest streams, and nothing to be gained by delaying anything."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.measure.credit import credit
from brain_coord.measure.speed import count_tokens, decode_tok_s
from brain_coord.routing import weights
from tests.support.simulated_fleet import Engine, HoldsBack, Honest, in_order, observe, sampled

SPEEDS = (5, 40, 400)


@pytest.mark.parametrize("tok_s", SPEEDS)
@pytest.mark.parametrize("rtt_ms", [1, 200])
def test_an_honest_node_is_estimated_within_5_percent(tok_s, rtt_ms):
    engine = Engine(tok_s, rtt_ms, prefill_ratio=16 if tok_s < 15 else 50, tokens_per_event=2)
    estimate = observe(engine, Honest(), Random(7))
    assert estimate.window.samples >= 10
    assert estimate.window.value == pytest.approx(tok_s, rel=0.05)


@pytest.mark.parametrize("tok_s", SPEEDS)
@pytest.mark.parametrize("rtt_ms", [1, 200])
def test_so_is_its_benchmark(tok_s, rtt_ms):
    engine = Engine(tok_s, rtt_ms, prefill_ratio=16 if tok_s < 15 else 50)
    assert observe(engine, Honest(), Random(7), streams=9, benchmark=True).window.value == pytest.approx(
        tok_s, rel=0.05
    )


@pytest.mark.parametrize("tok_s", SPEEDS)
def test_holding_everything_back_and_bursting_gains_nothing(tok_s):
    estimate = observe(Engine(tok_s, 20), HoldsBack(), Random(7))
    assert estimate.plain.value > 5 * tok_s, "the plain formula would have been fooled"
    assert estimate.window.value <= 1.06 * tok_s


def speed_of(events, tokens=200, prompt_bytes=400, rtt_ms=20.0):
    return credit(sampled(events, tokens), prompt_bytes=prompt_bytes, rtt_ms=rtt_ms)


DELAYS = st.lists(st.floats(0, 4), min_size=100, max_size=100)


@given(tok_s=st.sampled_from(SPEEDS), seed=st.integers(0, 999), delays=DELAYS)
@settings(max_examples=60)
def test_no_delay_whatsoever_gains_more_than_the_error_of_measurement(tok_s, seed, delays):
    honest = Engine(tok_s, 20, stalls=0.0).stream(Random(seed), 200, 400)
    delayed = in_order([(at + delays[number % 100], size) for number, (at, size) in enumerate(honest)])
    worth = speed_of(delayed)
    if worth is not None and not worth.at_most:
        assert worth.tok_s <= 1.12 * tok_s  # 5 % of the rule, and the noise of one stream


def test_to_keep_silent_about_the_tokens_only_ever_lowers_a_speed():
    events = Engine(40, 20, stalls=0.0).stream(Random(7), 200, 400)
    told = sampled(events, 200)
    silent = told._replace(completion=count_tokens(None, told.clock))
    silent = silent._replace(tok_s=decode_tok_s(silent.completion, told.clock))
    assert not credit(told, prompt_bytes=400, rtt_ms=20.0).at_most
    assert credit(silent, prompt_bytes=400, rtt_ms=20.0).at_most


def test_a_long_prompt_explains_a_long_wait_and_teaches_nothing_new():
    slow_prompt = [(3.0 + 0.02 * number, 1) for number in range(200)]
    worth = speed_of(slow_prompt, prompt_bytes=20_000)
    assert worth.at_most
    assert worth.tok_s > 50


def test_a_short_prompt_does_not():
    worth = speed_of([(3.0 + 0.02 * number, 1) for number in range(200)], prompt_bytes=400)
    assert not worth.at_most
    assert worth.tok_s == pytest.approx(200 / 7, rel=0.05)


def test_very_short_streams_only_bound_the_speed():
    assert speed_of([(0.05 + 0.01 * number, 5) for number in range(40)]).at_most


def test_one_event_is_worth_nothing():
    assert speed_of([(1.0, 200)]) is None


@pytest.mark.parametrize("delay_ms", [10, 50, 100, 250, 400])
@pytest.mark.parametrize("tok_s", [50, 100, 400])
def test_delaying_pongs_costs_more_than_it_gains(delay_ms, tok_s):
    """Capability gains at most half its weight per share of the fastest; latency loses from the first millisecond."""
    true_rtt_ms, fastest = 10.0, 400.0
    span_s = max(0.5, 200 / tok_s)
    burst = [(span_s + 0.06 * number / 200, 1) for number in range(200)]
    honest = speed_of(burst, rtt_ms=true_rtt_ms).tok_s
    lying = speed_of(burst, rtt_ms=true_rtt_ms + delay_ms).tok_s
    gained = (
        weights.CAPABILITY_WEIGHT * (1 - weights.SPEED_FLOOR) * (min(lying, fastest) - min(honest, fastest)) / fastest
    )
    lost_ms = min(delay_ms, weights.RTT_CEILING_MS - true_rtt_ms)
    lost = weights.LATENCY_WEIGHT * weights.RTT_SHARE * lost_ms / weights.RTT_CEILING_MS
    assert gained < lost
