"""Events known by their bytes from other streams: the same meaning, without reading them as JSON again."""

import json

import pytest

from brain_coord.gateway import sse
from brain_coord.gateway.dialects.openai import OpenAI
from brain_coord.gateway.dialects.seen import FINISH, QUIET, EventKind, Usage
from brain_coord.gateway.reader import Reader
from tests.gateway.engine_streams import CHAT, COMPLETIONS


class Counting:
    """A dialect that tells how many events it had to read."""

    def __init__(self) -> None:
        self._dialect = OpenAI("/v1/chat/completions", "A chat.", "messages")
        self.forms = self._dialect.forms
        self.reads = 0

    def read(self, data):
        self.reads += 1
        return self._dialect.read(data)


def stream(events, number: int) -> list[bytes]:
    """The same events as another stream of the same engine."""
    renamed = [event.replace(b"-be7e31f5e7523d40", b"-%016x" % number) for event in events]
    return [event.replace(b'"created":1795990', b'"created":%07d' % (1000000 + number)) for event in renamed]


def read_all(dialect, events) -> tuple[list, int]:
    reader, before = Reader(dialect), dialect.reads
    return [reader.read(event) for event in events], dialect.reads - before


@pytest.mark.parametrize("events", [CHAT, COMPLETIONS])
def test_a_second_stream_of_an_engine_is_read_by_its_bytes(events):
    dialect = Counting()
    seen, reads = read_all(dialect, stream(events, 1))
    again, fewer = read_all(dialect, stream(events, 2))
    assert again == seen
    assert fewer < reads


def test_the_form_of_text_is_kept_for_each_engine():
    def text(model, **more):
        choice = {"index": 0, "delta": {"content": "hi"}, **more}
        return b"data: " + json.dumps({"id": "c", "model": model, "choices": [choice]}).encode() + b"\n\n"

    dialect = Counting()
    for known in (False, True):
        for event in (text("m"), text("n", logprobs=None)):
            seen, reads = read_all(dialect, [event])
            assert seen[0].text_bytes == 2
            assert (reads == 0) is known


def test_a_start_that_changes_within_a_stream_is_found_again():
    dialect = Counting()
    role, text, *_ = CHAT
    read_all(dialect, [role, text])
    seen, reads = read_all(dialect, stream([role], 3) + stream([text], 4) + stream([text], 5))
    assert [each.kind for each in seen] == [EventKind.QUIET, EventKind.OUTPUT, EventKind.OUTPUT]
    assert reads == 0


def test_nothing_is_kept_that_somebody_wrote():
    dialect = Counting()
    start = b'data: {"id":"c",'
    plain = b'"choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":null}]}\n\n'
    telling = plain.replace(b"null", b'"goodbye"')
    prompt = b'"choices":[],"prompt_token_ids":[123,456]}\n\n'
    assert read_all(dialect, [start + each for each in (plain, telling, prompt)])[0] == [FINISH, FINISH, QUIET]
    assert [dialect.forms.meaning(each) for each in (plain, telling, prompt)] == [FINISH, None, None]


def test_what_stands_behind_a_start_decides():
    dialect = Counting()
    role = b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    assert read_all(dialect, [role, role])[0] == [QUIET, QUIET]
    wrong = [b'data: {"id":"c",data: [DONE]\n\n', role[:-4] + b"\n\n", role[:-4] + b',"error":"no"}\n\n']
    seen, reads = read_all(dialect, [role, *wrong])
    assert [each.kind for each in seen] == [EventKind.QUIET, *[EventKind.ERROR] * 3]
    assert reads == 3


def test_a_start_is_a_few_short_members():
    forms = Counting().forms
    assert forms.start.match(b'data: {"id":"a","created":7,"model":"m","choices":[]}\n\n')[1] == b'"m"'
    for members in (
        b'"id":"a",' * 100,
        b'"id":"%b",' % (b"a" * 1000),
        b'"created":07,',
        b'"usage":{},',
        b'"id":"\x80",',
    ):
        assert forms.start.match(b"data: {" + members + b'"choices":[]}\n\n') is None


@pytest.mark.parametrize("events", [CHAT, COMPLETIONS])
def test_token_counts_are_known_though_they_differ_from_stream_to_stream(events):
    dialect, usage = Counting(), events[-2]
    seen, reads = read_all(dialect, [usage, usage.replace(b'"completion_tokens":3', b'"completion_tokens":1234')])
    assert [each.usage.completion for each in seen] == [3, 1234]
    assert seen == [dialect.read(sse.data_of(usage)), seen[0]._replace(usage=seen[0].usage._replace(completion=1234))]
    assert reads == 0


def test_a_count_beyond_all_bounds_is_none_whichever_way_it_is_read():
    dialect, usage = Counting(), CHAT[-2]
    events = [
        usage.replace(b'"completion_tokens":3', b'"completion_tokens":%d' % number) for number in (10**8 - 1, 10**8)
    ]
    seen, reads = read_all(dialect, events)
    assert [each.usage for each in seen] == [Usage(3, 10**8 - 1), Usage(3, None)]
    assert seen == [dialect.read(sse.data_of(event)) for event in events]
    assert reads == 1


@pytest.mark.parametrize(
    ("of", "becomes"),
    [
        (b'"completion_tokens":3', b'"completion_tokens":03'),
        (b'"completion_tokens":3', b'"completion_tokens":-3'),
        (b'"completion_tokens":3', b'"completion_tokens":3,"completion_tokens":4'),
        (b'"total_tokens":6,', b""),
        (b'"system_fingerprint"', b'"error":"no","system_fingerprint"'),
        (b'"system_fingerprint"', b'"usage"'),
        (b"\n\n", b"}\n\n"),
    ],
)
def test_counts_in_another_form_are_read_as_json(of, becomes):
    dialect, event = Counting(), CHAT[-2].replace(of, becomes)
    seen, reads = read_all(dialect, [event])
    assert (seen, reads) == ([dialect.read(sse.data_of(event))], 1)


def test_an_end_is_known_in_one_piece_once_its_finish_is():
    dialect = Counting()
    finish = CHAT[0].replace(b'"role":"assistant",', b"").replace(b'"finish_reason":null', b'"finish_reason":"stop"')
    for number in (1, 2):
        text, *end = stream([CHAT[1], finish, CHAT[-2], CHAT[-1]], number)
        reader = Reader(dialect)
        reader.read(text)
        known = reader.ending(text + b"".join(end), len(text))
        if number == 1:
            assert known is None
            reader.read(end[0])
    assert known == (end[0], end[1], Usage(3, 3), end[2])
