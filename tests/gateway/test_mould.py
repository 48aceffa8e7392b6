"""Bursts of events that differ in their text alone: judged at once, and never otherwise than one by one."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.target import TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.dialects import CHAT, COMPLETIONS
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.mould import Mould
from brain_coord.gateway.passage import Passage
from brain_coord.gateway.reader import MOULDS
from brain_coord.measure.speed import StreamClock


def chat(text, **more) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


def mould_of(event: bytes, text_bytes: int) -> Mould | None:
    assert CHAT.forms is not None
    return Mould.of(event, CHAT.forms.plain_text, text_bytes)


def test_a_burst_is_counted_with_all_its_text():
    mould = mould_of(chat("a"), 1)
    texts = ["one", " two", "\n", "漢字", "\\", "😀"]
    burst = b"".join(map(chat, texts))
    run = mould.run(burst + chat("end", logprobs={}), 0)
    assert run[:3] == (len(burst), len(texts), sum(len(text.encode()) for text in texts))


def test_one_event_among_others_is_found_alone():
    mould = mould_of(chat("a"), 1)
    assert mould.run(chat("b") + chat("c", logprobs={}) + chat("d"), 0) is None
    assert [mould.alone(event) for event in (chat("bc"), chat("c", logprobs={}), chat('"'), chat("é"))] == [2, 0, 0, 0]


def test_a_burst_of_other_events_is_not_searched_through_for_each_of_them(monkeypatch):
    looks = []
    run = Mould.run

    def counted(mould, data, at):
        looks.append(at)
        return run(mould, data, at)

    monkeypatch.setattr(Mould, "run", counted)
    others = [chat("a", logprobs={"n": number}) for number in range(1000)]
    passed(CHAT, [chat("a"), b"".join(others)])
    assert len(looks) <= 2 + MOULDS


def test_an_event_without_text_or_whose_text_is_no_string_is_not_sure():
    mould = mould_of(chat("a"), 1)
    for event in (chat(""), chat("XX").replace(b"XX", b"\x80"), chat("XX").replace(b"XX", b"\x01")):
        assert mould.run(event, 0) is None
        assert mould.run(chat("a") + event, 0) is None
    assert mould.run(chat("XX").replace(b"XX", b"a\\") + chat("b"), 0) is None


def test_a_form_is_only_learned_where_the_text_is_the_only_one():
    two = b'data: {"choices":[{"index":0,"delta":{"content":"ab"}},{"index":1,"delta":{"content":"cd"}}]}\n\n'
    assert mould_of(two, 4) is None
    assert mould_of(chat("ab", delta={"content": "ab", "refusal": "cd"}), 4) is None
    assert mould_of(chat("a\n"), 2) is None


class OneByOne:
    """The dialect without what a burst is recognised by."""

    forms = None

    def __init__(self, dialect):
        self._dialect = dialect

    def __getattr__(self, name):
        return getattr(self._dialect, name)


def passed(dialect, pieces):
    answer = Answer(StreamClock(0.0))
    passage = Passage(dialect, answer, client_usage=True)
    out, fault, tail = [], None, None
    try:
        out = [passage.feed(piece, float(now)) for now, piece in enumerate(pieces, 1)]
        tail = passage.end(99.0)
    except (TargetFault, EngineFault) as error:
        fault = type(error)
    return out, tail, fault, vars(answer.clock), answer.usage, answer.finished, passage.committed


TEXT = st.text(st.characters(), max_size=6) | st.sampled_from(["a", "b", '"', "\\", '"}', "\n\n", "data: "])
DELTAS = (
    st.builds(lambda text: {"content": text}, TEXT)
    | st.builds(lambda text: {"content": text, "reasoning": text}, TEXT)
    | st.just({"role": "assistant", "content": ""})
    | st.just({"tool_calls": [{"function": {"arguments": "{"}}]})
)
EVENTS = (
    st.builds(lambda delta: {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, DELTAS)
    | st.builds(lambda text: {"choices": [{"index": 0, "text": text, "finish_reason": None}]}, TEXT)
    | st.just({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    | st.just({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    | st.just({"choices": [], "usage": {"prompt_tokens": 1, "total_tokens": 3, "completion_tokens": 2}})
    | st.just({"error": {"message": "no"}})
)
STARTS = st.sampled_from(
    [
        {"id": "c"},
        {"id": "d", "object": "o", "created": 7, "model": "m"},
        {"id": "e", "object": "o", "created": 8, "model": "m"},
        {"id": "f", "created": 7, "model": "n", "system_fingerprint": None},
        {"id": 'a"', "model": "m"},
        {"id": "g", "created": -7},
        {"error": None, "id": "h"},
        {},
    ]
)
SMALL = st.booleans()


def written(event, ascii_only: bool) -> bytes:
    try:
        return b"data: " + json.dumps(event, ensure_ascii=ascii_only).encode() + b"\n\n"
    except UnicodeEncodeError:  # a lone surrogate has no other form
        return b"data: " + json.dumps(event).encode() + b"\n\n"


@given(
    st.lists(EVENTS, max_size=12),
    st.lists(STARTS, min_size=1, max_size=3),
    SMALL,
    st.lists(st.integers(0, 2000), max_size=4),
    st.booleans(),
)
def test_together_and_one_by_one_say_the_same_whatever_was_seen_before(events, starts, ascii_only, cuts, old_form):
    begun = [{**starts[min(at, len(starts) - 1)], **event} for at, event in enumerate(events)]
    raw = b"".join(written(event, ascii_only) for event in begun) + b"data: [DONE]\n\n"
    edges = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    pieces = [raw[start:end] for start, end in pairwise(edges)]
    dialect = COMPLETIONS if old_form else CHAT
    assert passed(dialect, pieces) == passed(OneByOne(dialect), pieces)
