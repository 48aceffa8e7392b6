"""The text in an answer's bytes."""

import json

import pytest

from brain_coord.measure.transcript import read_transcript
from tests.support.raw_node import chunk, usage


def stream(*events, end=b"\n\n"):
    return b"".join(
        b"data: " + (each if isinstance(each, bytes) else json.dumps(each).encode()) + end for each in events
    )


def test_a_stream_says_what_its_deltas_say():
    data = stream(chunk("", role="assistant"), chunk("one "), chunk("two"), chunk(finish="stop"), usage(2), b"[DONE]")
    said = read_transcript(data, streamed=True)
    assert (said.text, said.finish) == ("one two", "stop")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_every_line_end_is_read(end):
    assert read_transcript(stream(chunk("a"), chunk("é漢"), end=end), streamed=True).text == "aé漢"


def test_comments_and_broken_events_are_left_out():
    data = b": waiting\n\n" + stream(chunk("a"), b"{broken", chunk("b"))
    assert read_transcript(data, streamed=True).text == "ab"


def test_a_whole_answer_and_a_completion_are_read_too():
    whole = {"choices": [{"index": 0, "message": {"content": "yes"}, "finish_reason": "stop"}]}
    assert read_transcript(json.dumps(whole).encode(), streamed=False).text == "yes"
    assert read_transcript(json.dumps({"choices": [{"text": "on it"}]}).encode(), streamed=False).text == "on it"


def test_reasoning_is_kept_apart_from_the_answer():
    thinks = {"choices": [{"index": 0, "delta": {"reasoning": "hmm "}}]}
    said = read_transcript(stream(thinks, chunk("yes")), streamed=True)
    assert (said.text, said.whole) == ("yes", "hmm yes")
    aloud = read_transcript(stream(chunk("<think>hmm</think>\n\nyes")), streamed=True)
    assert aloud.answer == "yes"


def test_only_the_first_of_several_choices_is_read():
    second = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    assert read_transcript(stream(chunk("a"), second, chunk("b")), streamed=True).text == "ab"


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'{"choices": 3}', b'{"choices": [1, null]}', b"\xff\xfe"])
def test_what_is_no_answer_says_nothing(data):
    assert read_transcript(data, streamed=False).whole == ""
    assert read_transcript(b"data: " + data + b"\n\n", streamed=True).whole == ""
