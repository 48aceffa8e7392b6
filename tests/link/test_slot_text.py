"""The short forms of slot messages are those of the model, and everything unusual is left to it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.link.slot_text import DONE, TAKEN, Over, Status, accepted_text, done_text, job_text, read_answer
from brain_node.contract.messages import Accepted, End, Head, Job, MessageError, decode, encode
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
            return Status(message.status, message.content_type, message.retry_after)
        case End():
            return Over(message.ok, message.cause)
    return None


def test_a_job_is_written_as_the_model_writes_it():
    text = job_text(JOB.id, JOB.model, JOB.path, JOB.deadline_s, JOB.body_bytes)
    assert json.loads(text) == json.loads(encode(JOB))


def test_the_usual_texts_are_those_that_nodes_write_and_mean_what_they_say():
    assert accepted_text("req-1-1").encode() == of_nodes.accepted_text("req-1-1")
    assert done_text("req-1-1").encode() == of_nodes.end_text("req-1-1", None)
    assert read_answer(accepted_text("req-1-1"), "req-1-1") is TAKEN
    assert read_answer(done_text("req-1-1"), "req-1-1") == DONE


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


@given(MESSAGES)
def test_so_is_whatever_else_a_node_may_send(message):
    text = json.dumps(message)
    assert outcome(lambda: read_answer(text, "req-1-1")) == outcome(lambda: said(decode(text)))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"id":"req-1-1"}', '{"type":7,"id":"req-1-1"}'])
def test_what_is_no_message_is_refused_in_the_same_words(text):
    assert outcome(lambda: read_answer(text, "req-1-1")) == outcome(lambda: decode(text))
