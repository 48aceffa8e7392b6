"""Canary questions: checkable, generated, and of the shape of a customer's request."""

import json
from random import Random

import pytest

from brain_coord.measure.transcript import Transcript
from brain_coord.probes.questions import THINKING_TOKENS, ask

MODEL = "qwen/qwen2.5-1.5b-instruct"
SEEDS = range(40)


def body(question):
    return json.loads(question.body)


def shown(question):
    """The turns that show how it is done, as pairs, and what is asked last."""
    messages = [each["content"] for each in body(question)["messages"] if each["role"] != "system"]
    return list(zip(messages[:-1:2], messages[1:-1:2], strict=True)), messages[-1]


def solve(question):
    """What a model that understood the pattern says."""
    turns, last = shown(question)
    if question.kind == "sum":
        return str(sum(int(each) for each in last.replace("=", " ").replace("+", " ").split()))
    asked, answered = turns[0]
    return last if answered == asked else last.split(" / ")[0].split(", ")[0].split(" ")[0]


@pytest.mark.parametrize("kind", ["echo", "sum"])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_goes_on_with_the_pattern_is_right(kind, seed):
    question = ask(kind, MODEL, Random(seed))
    for form in ("{}", " {}.", "{}\n", "<think>\nLet me see.\n</think>\n\n{}"):
        assert question.right(Transcript(form.format(solve(question))))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sum_that_is_written_out_is_right_too(seed):
    question = ask("sum", MODEL, Random(seed))
    assert question.right(Transcript(f"{shown(question)[1]} = {solve(question)}"))


@pytest.mark.parametrize("kind", ["echo", "sum"])
@pytest.mark.parametrize("seed", SEEDS)
def test_canned_recited_empty_and_wrong_answers_are_not(kind, seed):
    question = ask(kind, MODEL, Random(seed))
    turns, _ = shown(question)
    recited = "\n".join(f"{asked} {answered}" for asked, answered in turns)
    for text in ("", "yes", "42", "one two three", recited, turns[-1][1], "I cannot help with that."):
        if text != solve(question):
            assert not question.right(Transcript(text))


def test_no_question_comes_twice():
    random = Random(1)
    assert len({ask(kind, MODEL, random).body for kind in ("echo", "sum", "fingerprint") for _ in range(300)}) >= 890


@pytest.mark.parametrize("kind", ["echo", "sum", "fingerprint"])
def test_its_body_is_what_the_gateway_would_pass_on_for_the_usual_client(kind):
    for seed in SEEDS:
        raw = ask(kind, MODEL, Random(seed)).body
        members = list(json.loads(raw))
        assert members == ["messages", "model", "max_tokens", "stream", "temperature", "stream_options"]
        assert raw.endswith(b',"stream_options":{"include_usage":true}}')
        assert b'": ' not in raw.replace(b'\\"', b"")
        assert b"canary" not in raw.lower()


def test_a_model_that_thinks_first_gets_room_for_it():
    for model in ("qwen/qwen3-8b", "deepseek-ai/deepseek-r1-distill-llama-8b", "openai/gpt-oss-20b"):
        assert body(ask("sum", model, Random(1)))["max_tokens"] == THINKING_TOKENS
    assert body(ask("sum", MODEL, Random(1)))["max_tokens"] < 64


def test_a_fingerprint_has_no_right_answer_but_the_peers():
    assert ask("fingerprint", MODEL, Random(1)).right is None
