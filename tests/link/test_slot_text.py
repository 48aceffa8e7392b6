"""The short forms of slot messages are those of the model, and everything unusual is left to it."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.target import ReplyHead
from brain_coord.gateway.result import NOT_ASKED
from brain_coord.link.slot_text import DONE, TAKEN, Over, job_text, read_answer
from brain_node.contract.messages import Accepted, End, EndCause, Head, Job, MessageError, decode, encode
from brain_node.link import slot_text as of_nodes

JOB = Job(id="req-1-1", model="qwen/qwen3-8b", path="/v1/chat/completions", deadline_s=12.5, body_bytes=7)

VALUES = st.none() | st.booleans() | st.integers(0, 700) | st.text(max_size=300) | st.lists(st.integers(), max_size=1)
MESSAGES = st.fixed_dictionaries(
    {"type": st.sampled_from(["accepted", "head", "end", "cancel", "later"]), "id": st.sampled_from(["req-1-1", "other", 7])},
    optional={"ok": VALUES, "cause": VALUES, "status": VALUES, "content_type": VALUES, "retry_after": VALUES, "new": VALUES},
)  # fmt: skip


def outcome(read):
    try:
        return read()
    except MessageError as error:
        return str(error)


def said(message):
    """What a message that the model read says of the job `req-1-1`."""
    if isinstance(message, Accepted | Head | End) and message.id != "req-1-1":
        raise MessageError("an answer to another job than the one that runs")
    match message:
        case Accepted():
            return TAKEN
        case Head():
            return ReplyHead(message.status, message.content_type, message.retry_after)
        case End():
            return Over(message.ok, message.cause if message.cause in get_args(EndCause) else None)
    return None


def test_a_job_is_written_as_the_model_writes_it():
    text = job_text(JOB.id, JOB.model, JOB.path, JOB.deadline_s, JOB.body_bytes)
    assert json.loads(text) == json.loads(encode(JOB))


def test_the_usual_texts_of_nodes_are_known_without_reading_them(monkeypatch):
    monkeypatch.setattr("brain_coord.link.slot_text.orjson", None)
    stream, whole = "text/event-stream; charset=utf-8", "application/json"
    usual = [
        (of_nodes.accepted_text("req-1-1"), TAKEN),
        (of_nodes.head_text("req-1-1", 200, stream, None), ReplyHead(200, stream)),
        (of_nodes.head_text("req-1-1", 200, whole, None), ReplyHead(200, whole)),
        (of_nodes.end_text("req-1-1", None), DONE),
    ]
    for text, meaning in usual:
        assert read_answer(text.decode(), "req-1-1") == meaning


@pytest.mark.parametrize(
    "message",
    [
        Accepted(id="req-1-1"),
        Head(id="req-1-1", status=200, content_type="text/event-stream"),
        Head(id="req-1-1", status=503, retry_after="3"),
        End(id="req-1-1", ok=True),
        End(id="req-1-1", ok=False, cause="engine_lost"),
    ],
)
def test_an_answer_is_read_as_the_model_reads_it(message):
    assert read_answer(encode(message), "req-1-1") == said(message)


@pytest.mark.parametrize("word", [*sorted(NOT_ASKED), "deadline", "engine_error", "node_lost", "anything"])
def test_a_node_cannot_give_a_cause_that_is_the_coordinators_own(word):
    """A job that ended as `no_free_slot` would leave no receipt, as if the node had never seen it."""
    assert read_answer(encode(End(id="req-1-1", ok=False, cause=word)), "req-1-1") == Over(ok=False, cause=None)


@given(MESSAGES)
def test_so_is_whatever_else_a_node_may_send(message):
    text = json.dumps(message)
    assert outcome(lambda: read_answer(text, "req-1-1")) == outcome(lambda: said(decode(text)))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"id":"req-1-1"}', '{"type":7,"id":"req-1-1"}'])
def test_what_is_no_message_is_refused_in_the_same_words(text):
    assert outcome(lambda: read_answer(text, "req-1-1")) == outcome(lambda: decode(text))
