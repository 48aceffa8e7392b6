"""A large whole answer is read in pieces, off the event loop, and says what it would say if it were parsed at once."""

import json
import threading
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.gateway import json_scan, large_answer, relay
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.deadline import Deadline
from brain_coord.gateway.dialects import CHAT, COMPLETIONS, EMBEDDINGS, MESSAGES, RESPONSES
from brain_coord.gateway.large_answer import read_large
from brain_coord.gateway.relay import LARGE_BYTES, PhaseLimits, relay_whole
from brain_coord.measure.speed import StreamClock
from tests.support.fake_targets import FakeExchange, FakeTarget, Play

TEXTS = st.text(st.sampled_from('ab"\\{}[],:é😀\n'), max_size=40)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3))
LOGPROBS = st.fixed_dictionaries({"content": st.lists(ANYTHING, max_size=5)})
CALLS = st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS})})
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | TEXTS}, optional={"tool_calls": st.lists(CALLS, max_size=3)}
)
CHOICE = st.fixed_dictionaries({"message": MESSAGE}, optional={"logprobs": LOGPROBS, "index": st.integers()})
PART = st.fixed_dictionaries({"type": TEXTS, "text": TEXTS})
ITEM = st.fixed_dictionaries({"content": st.lists(PART, max_size=3)}, optional={"arguments": TEXTS, "odd": ANYTHING})
BLOCK = PART | st.fixed_dictionaries({"input": st.dictionaries(TEXTS, ANYTHING, max_size=3)})
FORMS = {
    CHAT: ("choices", CHOICE),
    COMPLETIONS: ("choices", PART),
    RESPONSES: ("output", ITEM),
    MESSAGES: ("content", BLOCK),
}


@pytest.mark.parametrize("dialect", FORMS, ids=lambda dialect: dialect.path)
@given(data=st.data(), piece=st.sampled_from([25, 60, 200]), indent=st.sampled_from([None, 1]), plain=st.booleans())
def test_it_holds_the_text_that_the_whole_holds(dialect, data, piece, indent, plain):
    name, element = FORMS[dialect]
    body = data.draw(
        st.fixed_dictionaries(
            {name: st.lists(element | SCALARS, max_size=6)}, optional={"usage": ANYTHING, "x": ANYTHING}
        )
    )
    with patch.object(large_answer, "PIECE_BYTES", piece):
        short, text_bytes = read_large(json.dumps(body, indent=indent, ensure_ascii=plain).encode(), dialect)
    assert text_bytes == dialect.text_bytes_of(body)
    assert short.keys() == body.keys()


def chat_of(mebibytes: int) -> dict:
    token = {"token": "é", "logprob": -1.25, "bytes": [195, 169], "top_logprobs": []}
    tokens = [{**token, "top_logprobs": [token] * 20}] * (mebibytes * 700)
    message = {"role": "assistant", "content": "é" * 100_000, "tool_calls": None}
    choice = {"index": 0, "message": message, "logprobs": {"content": tokens}, "finish_reason": "stop"}
    return {"id": "c", "choices": [choice] * 2, "usage": {"prompt_tokens": 3, "completion_tokens": 99}}


def vectors_of(mebibytes: int) -> dict:
    vector = {"object": "embedding", "embedding": [-0.0123456789] * 1024}
    return {"data": [vector] * (mebibytes * 70), "usage": {"prompt_tokens": 3, "total_tokens": 3}}


@pytest.mark.parametrize(
    ("dialect", "make", "text_bytes"), [(CHAT, chat_of, 400_000), (EMBEDDINGS, vectors_of, 143_360)]
)
async def test_it_is_read_in_pieces_and_in_another_thread(dialect, make, text_bytes):
    body = json.dumps(make(2)).encode()
    assert len(body) > LARGE_BYTES
    sizes, threads = [], set()

    def loads(text: bytes) -> object:
        sizes.append(len(text))
        threads.add(threading.get_ident())
        return json.loads(text)

    answer = Answer(StreamClock(0.0))
    limit = Deadline(relay.NEVER, 1.0)
    with patch.object(large_answer, "_loads", loads), limit:
        exchange = FakeExchange(FakeTarget(), Play(body=body))
        assert await relay_whole(exchange, dialect, answer, limit, PhaseLimits()) is body
    assert (answer.usage.prompt, answer.clock.text_bytes) == (3, text_bytes)
    assert threading.get_ident() not in threads
    assert max(sizes) <= 700_000  # the one long text
    assert sorted(sizes)[-5] <= 3 * large_answer.PIECE_BYTES


@pytest.mark.parametrize("body", [b'{"choices":[%b]}', b'{"choices":[{"message":{"tool_calls":[%b]}}]}', b'{"x":%b}'])
@pytest.mark.parametrize("text", [b"[],", b"{}", b'"",', b"}", b"1 ", b'"'])
async def test_one_of_nothing_but_marks_is_no_answer(body, text):
    with patch.object(json_scan, "MOST_STEPS", 10_000), pytest.raises(ValueError):
        read_large(body % (text * 400_000), CHAT)


def test_of_what_an_engine_pads_its_answer_with_little_is_kept():
    calls = [{"function": {"name": "f" * 60, "arguments": ""}}] * 1000
    body = json.dumps({"choices": [{"message": {"tool_calls": calls}, "odd": ["x" * 50] * 1000}]}).encode()
    with patch.object(large_answer, "PIECE_BYTES", 100), patch.object(large_answer, "KEPT_BYTES", 20_000):
        assert 0 < read_large(body, CHAT)[1] < 20_000


def test_of_a_member_that_is_there_twice_the_last_one_counts():
    body = b'{"choices":[{"text":"%b"}],"choices":[{"text":"ab"}]}' % (b"x" * 100_000)
    assert read_large(body, COMPLETIONS)[1] == 2
