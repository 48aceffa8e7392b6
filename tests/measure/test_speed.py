"""Tokens and decode speed of one stream."""

import pytest

from brain_coord.measure.speed import StreamClock, StreamSample, TokenCount, count_tokens, decode_tok_s


def stream(*events, dispatched=0.0):
    """A clock that saw events of `(time, bytes of text)`."""
    clock = StreamClock(dispatched)
    for at, text_bytes in events:
        clock.output(at, text_bytes)
    return clock


@pytest.mark.case("E-10")
def test_several_tokens_in_one_event_count_by_the_usage():
    clock = stream(*((0.2 + 0.1 * number, 20) for number in range(5)))
    assert decode_tok_s(count_tokens(25, clock), clock) == pytest.approx(20 / 0.4)


@pytest.mark.case("E-10")
def test_more_events_than_tokens_change_nothing():
    clock = stream(*((0.1 * number, 4) for number in range(30)))
    count = count_tokens(25, clock)
    assert (count.tokens, count.basis) == (25, "usage")
    assert decode_tok_s(count, clock) == pytest.approx(24 / 2.9, rel=0.01)


@pytest.mark.case("E-10")
def test_without_usage_the_count_is_an_estimate_and_says_so():
    clock = stream((0.1, 40), (1.1, 40))
    assert count_tokens(None, clock) == TokenCount(20, "estimated")


@pytest.mark.case("E-10")
def test_one_event_gives_no_speed():
    clock = stream((0.1, 400))
    assert decode_tok_s(count_tokens(100, clock), clock) is None


def test_a_burst_within_a_blink_gives_no_speed():
    clock = stream((5.0, 4), (5.001, 400))
    assert decode_tok_s(count_tokens(100, clock), clock) is None


def test_more_tokens_than_the_text_can_hold_are_clipped():
    clock = stream((0.1, 40), (1.1, 40))
    assert count_tokens(10_000, clock) == TokenCount(88, "clipped")


def test_cutting_the_text_into_more_events_holds_no_more_tokens():
    few, many = stream((0.1, 40), (1.1, 40)), stream(*((0.1 + 0.01 * n, 0) for n in range(500)), (1.1, 80))
    assert count_tokens(10_000, few).tokens == count_tokens(10_000, many).tokens
    assert count_tokens(None, few).tokens == count_tokens(None, many).tokens


def test_the_models_own_tokenizer_has_the_last_word():
    clock = stream((0.1, 200), (1.1, 200))
    assert count_tokens(101, clock, counted=100) == TokenCount(101, "tokenizer")  # the end of a turn shows no text
    assert count_tokens(200, clock, counted=100) == TokenCount(100, "tokenizer")
    assert count_tokens(None, clock, counted=100) == TokenCount(100, "tokenizer")


def test_an_answer_without_output_is_empty():
    assert StreamSample(stream(), TokenCount(0, "usage"), None).empty
    assert StreamSample(stream((0.1, 0)), TokenCount(1, "usage"), None).empty
    assert not StreamSample(stream((0.1, 2)), TokenCount(1, "usage"), None).empty
