"""A stream on its way through, without any I/O: what goes out when, what is held, what the receipt will say."""

import json

import pytest

from brain_coord.classes.target import TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.dialects import CHAT, DIALECTS
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.passage import HELD_BYTES, Passage
from brain_coord.measure.speed import StreamClock
from tests.gateway.engine_streams import STREAMS

DONE = b"data: [DONE]\n\n"


def chunk(content=None, *, finish=None, index=0, **delta) -> bytes:
    if content is not None:
        delta["content"] = content
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def usage(completion, prompt=3, **more) -> bytes:
    event = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}, **more}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


class Run:
    """Feeds pieces one second apart."""

    def __init__(self, path: str = CHAT.path, *, client_usage: bool = True) -> None:
        self.answer = Answer(StreamClock(0.0))
        self.passage = Passage(DIALECTS[path], self.answer, client_usage=client_usage)
        self.out: list[bytes] = []
        self.now = 0.0

    def feed(self, *pieces: bytes) -> "Run":
        for piece in pieces:
            self.now += 1.0
            self.out.append(self.passage.feed(piece, self.now))
        return self

    def end(self) -> bytes:
        """Everything the client would get, the tail included."""
        ready, tail = self.passage.end(self.now)
        return b"".join([*self.out, ready, *tail.events])


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_what_an_engine_wrote_comes_out_byte_for_byte(path, size):
    raw = b"".join(STREAMS[path])
    run = Run(path).feed(*(raw[at : at + size] for at in range(0, len(raw), size)))
    assert run.end() == raw
    assert (run.answer.usage.prompt, run.answer.usage.completion) == (1 if path == "/v1/completions" else 3, 3)
    assert run.answer.clock.text_bytes == len("Every answer of")
    assert run.answer.finished


@pytest.mark.parametrize("path", STREAMS)
def test_nothing_goes_out_before_real_output_and_the_end_waits_for_the_receipt(path):
    stream = STREAMS[path]
    run = Run(path).feed(*stream)
    first = next(at for at, out in enumerate(run.out) if out)
    assert b"Every" in run.out[first]
    assert run.answer.clock.first_output == first + 1.0
    assert run.out[first] == b"".join(stream[: first + 1])
    _, tail = run.passage.end(run.now)
    held = b"".join(tail.events)
    assert held
    assert b"Every" not in held.partition(b"response.completed")[0]
    assert b"".join([*run.out, held]) == b"".join(stream)


@pytest.mark.case("C-01")
def test_empty_choices_and_a_role_alone_are_passed_on_in_order_and_are_no_first_token():
    events = [
        b'data: {"choices": [], "prompt_filter_results": []}\n\n',
        chunk(role="assistant"),
        chunk(""),
        chunk("Hello"),
        chunk(" there"),
        chunk(finish="stop"),
        usage(2),
        DONE,
    ]
    run = Run().feed(*events)
    assert run.end() == b"".join(events)
    assert run.answer.clock.first_output == 4.0
    assert run.answer.usage.completion == 2


def test_the_usage_chunk_that_nobody_asked_for_is_held_back_and_counts():
    run = Run(client_usage=False).feed(chunk("a"), chunk(finish="stop"), usage(1), DONE)
    assert run.end() == chunk("a") + chunk(finish="stop") + DONE
    assert run.answer.usage.completion == 1


@pytest.mark.parametrize("marker", [b"data:[DONE]\n\n", b"data: [DONE] \n\n", b"event: done\ndata: [DONE]\r\n\r\n"])
def test_the_end_marker_is_known_however_it_is_written(marker):
    run = Run().feed(chunk("a"), marker)
    assert run.end() == chunk("a") + marker
    assert run.passage.whole


@pytest.mark.case("C-09")
@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"function": {"arguments": '{"a'}}]},
        {"tool_calls": [{"index": 0, "type": "custom", "custom": {"input": "a line"}}]},
        {"function_call": {"name": "f", "arguments": "{}"}},
        {"audio": {"data": "AAAA"}},
        {"content": "x", "token_ids": [1]},
    ],
)
def test_every_kind_of_output_commits_and_passes_as_it_was_sent(delta):
    event = b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}], "odd": 2**53}).encode() + b"\n\n"
    run = Run().feed(chunk(role="assistant"), event)
    assert run.out == [b"", chunk(role="assistant") + event]
    assert run.answer.clock.text_bytes > 0


@pytest.mark.case("C-09")
def test_interleaved_choices_keep_their_order_and_the_last_end_is_held():
    events = [chunk("a", index=0), chunk("b", index=1), chunk(finish="stop", index=0), chunk("c", index=1)]
    run = Run().feed(*events, chunk(finish="stop", index=1), DONE)
    assert b"".join(run.out) == b"".join(events)
    assert run.end() == b"".join([*events, chunk(finish="stop", index=1), DONE])


@pytest.mark.case("C-07")
def test_a_choice_that_goes_on_behind_the_end_of_another_has_to_end_too():
    run = Run().feed(chunk("a", index=0), chunk(finish="stop", index=0), chunk("b", index=1))
    with pytest.raises(TargetFault) as fault:
        run.end()
    assert fault.value.cause == "incomplete"


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("size", [None, 1])
def test_what_stands_behind_the_end_marker_goes_out_with_it_and_means_nothing(path, size):
    events = [*STREAMS[path], DONE]
    behind = [*events[:-2], b'data: {"error": "late"}\n\n', b"data: {broken\n\n", DONE]
    raw = b"".join(events + behind)
    run, alone = Run(path), Run(path).feed(*events)
    run.feed(*(events + behind if size is None else [raw[at : at + size] for at in range(len(raw))]))
    assert b"".join(run.out) == b"".join(alone.out)
    assert run.end() == raw
    assert run.answer.usage == alone.answer.usage
    assert run.answer.clock.text_bytes == alone.answer.clock.text_bytes


def test_a_prompt_that_comes_back_once_for_each_choice_may_be_long():
    roles = [chunk("", role="assistant", index=index, prompt_token_ids=[*range(100_000)]) for index in range(3)]
    assert sum(map(len, roles)) > 2**20
    run = Run().feed(*roles, chunk("a"))
    assert b"".join(run.out) == b"".join([*roles, chunk("a")])


@pytest.mark.case("C-03")
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_no_byte_of_the_last_line_end_is_lost_wherever_a_stream_is_cut(end):
    raw = (chunk("a") + chunk(finish="stop") + DONE).replace(b"\n", end)
    for at in range(len(raw)):
        assert Run().feed(raw[:at], raw[at:]).end() == raw


@pytest.mark.case("C-03")
def test_comments_and_hints_pass_in_their_place_and_are_no_tokens():
    events = [b": keep-alive\n\n", b"retry: 10\n\n", chunk("a"), b":\n\n", chunk("b"), chunk(finish="stop"), DONE]
    run = Run().feed(*events)
    assert run.out[:3] == [b"", b"", b"".join(events[:3])]
    assert run.end() == b"".join(events)
    assert run.answer.clock.output_events == 2


@pytest.mark.case("C-05")
def test_characters_cut_anywhere_come_out_whole():
    text = "naive-ï 漢字 🌍"
    event = b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, ensure_ascii=False).encode() + b"\n\n"
    raw = event + chunk(finish="stop") + DONE
    run = Run().feed(*(raw[at : at + 1] for at in range(len(raw))))
    assert run.end() == raw
    assert run.answer.clock.text_bytes == len(text.encode())


@pytest.mark.case("C-05")
def test_characters_that_an_engine_cut_in_half_pass_as_it_wrote_them():
    halves = [chunk("\ud83c"), chunk("\udf0d"), chunk("a\ud83c"), chunk("\udf0db", logprobs={})]
    run = Run().feed(chunk("a"), *halves, b"".join(halves), chunk(finish="stop"), DONE)
    assert run.end() == b"".join([chunk("a"), *halves, *halves, chunk(finish="stop"), DONE])
    assert run.answer.clock.text_bytes == 1 + 2 * 14


def test_numbers_that_are_none_pass_as_the_engine_wrote_them():
    event = chunk("a", finish="stop")[:-3] + b',"logprobs":[NaN,-Infinity,1e400]}\n\n'
    assert Run().feed(event, DONE).end() == event + DONE


def test_a_tool_call_of_any_depth_is_output():
    deep: list = []
    for _ in range(300):
        deep = [deep]
    block = {"type": "tool_use", "name": "look", "input": {"at": deep}}
    run = Run("/v1/messages").feed(
        b"data: " + json.dumps({"type": "content_block_start", "content_block": block}).encode() + b"\n\n"
    )
    assert run.passage.committed
    assert DIALECTS["/v1/messages"].text_bytes_of({"content": [block]}) >= len("look")


@pytest.mark.case("C-07")
def test_a_stream_that_ends_without_a_finish_is_not_complete():
    run = Run().feed(chunk("a"), chunk("b"))
    with pytest.raises(TargetFault) as fault:
        run.passage.end(3.0)
    assert fault.value.cause == "incomplete"
    assert run.out == [chunk("a"), chunk("b")]


@pytest.mark.case("C-07")
def test_an_end_marker_without_any_output_is_not_an_answer():
    run = Run().feed(chunk(role="assistant"), DONE)
    with pytest.raises(TargetFault):
        run.passage.end(3.0)
    assert run.out == [b"", b""]


def test_an_engine_that_forgets_the_finish_reason_but_marks_the_end_has_ended():
    assert Run().feed(chunk("a"), DONE).end() == chunk("a") + DONE


def test_an_engine_that_forgets_the_last_blank_line_is_heard():
    run = Run().feed(chunk("a"), chunk(finish="stop"), DONE.rstrip())
    assert run.end() == chunk("a") + chunk(finish="stop") + DONE


@pytest.mark.case("C-07")
def test_an_error_event_after_output_ends_the_answer_with_what_came_before_it():
    run = Run().feed(chunk("a"))
    with pytest.raises(EngineFault):
        run.feed(chunk("b") + b'data: {"error": {"message": "died"}}\n\n' + DONE)
    assert run.passage.out() == chunk("b")


@pytest.mark.case("E-06")
def test_an_error_event_before_output_leaves_nothing_behind():
    run = Run().feed(chunk(role="assistant"))
    with pytest.raises(EngineFault):
        run.feed(chunk("a") + b'data: {"error": "out of memory"}\n\n')
    assert run.out == [b""]
    assert run.passage.out() == b""


@pytest.mark.parametrize("bad", [b"data: {broken\n\n", b"data: 7\n\n"])
@pytest.mark.parametrize("path", STREAMS)
def test_events_that_are_no_json_objects_are_a_fault_of_the_engine(path, bad):
    with pytest.raises(EngineFault):
        Run(path).feed(bad)


def test_endless_events_without_output_are_refused():
    run = Run()
    with pytest.raises(TargetFault) as fault:
        for _ in range(HELD_BYTES):
            run.feed(b": " + b"x" * 1000 + b"\n\n")
    assert fault.value.cause == "protocol"


@pytest.mark.case("E-10")
@pytest.mark.parametrize(
    ("pieces", "completion"),
    [
        ([usage(25) + DONE], 25),
        ([usage(25), DONE], 25),
        ([usage(5), usage(15), usage(25), DONE], 25),
        ([DONE], None),
        ([usage(None), DONE], None),
        ([usage(True), DONE], None),
        ([usage(-1), DONE], None),
    ],
)
def test_the_last_usage_counts_and_is_never_summed(pieces, completion):
    run = Run(client_usage=False).feed(chunk("word " * 5), chunk(finish="stop"), *pieces)
    run.end()
    assert run.answer.usage.completion == completion


START = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1795990468,"model":"ends",'
TEXT = START + b'"choices":[{"index":0,"delta":{"content":"Every"},"finish_reason":null}]}\n\n'
FINISH = START + b'"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}\n\n'
COUNTS = START + b'"choices":[],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}\n\n'


@pytest.mark.parametrize("client_usage", [True, False])
@pytest.mark.parametrize(
    "ending",
    [
        [FINISH, COUNTS, DONE],
        [FINISH, DONE],
        [COUNTS, DONE],
        [FINISH, FINISH, COUNTS, DONE],
        [FINISH, COUNTS, COUNTS, DONE],
        [FINISH, b": so long\n\n", COUNTS, DONE],
        [FINISH, COUNTS, TEXT, DONE],
        [FINISH, COUNTS, b": " + START, DONE],
        [COUNTS, FINISH, DONE],
        [FINISH, COUNTS, DONE, DONE],
        [FINISH, COUNTS],
    ],
)
def test_an_end_that_comes_with_the_text_is_read_as_it_is_alone(ending, client_usage):
    events = [TEXT, TEXT, *ending]
    alone = Run(client_usage=client_usage).feed(*events)
    with_text = Run(client_usage=client_usage).feed(b"".join(events))
    assert with_text.end() == alone.end()
    assert with_text.passage.end(0.0)[1] == alone.passage.end(0.0)[1]
    assert with_text.answer.usage == alone.answer.usage
    assert (with_text.answer.finished, with_text.answer.clock.text_bytes) == (True, alone.answer.clock.text_bytes)


@pytest.mark.case("E-10")
def test_cumulative_usage_on_every_event_is_not_summed():
    run = Run()
    for number in range(1, 6):
        event = {"choices": [{"index": 0, "delta": {"content": "five words of text go "}}]}
        event["usage"] = {"prompt_tokens": 3, "completion_tokens": 5 * number}
        run.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    run.feed(chunk(finish="stop"), DONE)
    run.end()
    assert run.answer.sample.completion.tokens == 25


@pytest.mark.case("E-10")
def test_without_usage_the_count_is_marked_as_an_estimate():
    run = Run().feed(chunk("word"), chunk("word"), chunk(finish="stop"), DONE)
    run.end()
    assert run.answer.sample.completion.basis == "estimated"


@pytest.mark.case("E-10")
def test_a_reply_of_one_event_has_no_rate():
    run = Run().feed(chunk("everything at once", finish="stop") + usage(4) + DONE)
    run.end()
    assert run.answer.sample.tok_s is None
    assert run.answer.sample.completion.tokens == 4


@pytest.mark.case("E-10")
@pytest.mark.parametrize(("events", "tokens"), [(5, 25), (30, 25)])
def test_the_rate_follows_tokens_and_not_events(events, tokens):
    run = Run().feed(*(chunk("w" * (600 // events)) for _ in range(events)), chunk(finish="stop"), usage(tokens), DONE)
    run.end()
    per_event = tokens / events
    assert run.answer.sample.tok_s == pytest.approx((tokens - max(1.0, per_event)) / (events - 1), rel=0.01)


def test_anthropic_counts_are_merged_from_the_start_and_the_end():
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    run = Run("/v1/messages")
    for event in (start, {"type": "content_block_delta", "delta": {"text": "some words of text"}}, delta):
        run.feed(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n")
    run.end()
    assert (run.answer.usage.prompt, run.answer.usage.completion) == (9, 7)


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("/v1/responses", {"type": "response.failed", "response": {"error": {"message": "x"}}}),
        ("/v1/responses", {"type": "error", "message": "x"}),
        ("/v1/messages", {"type": "error", "error": {"type": "api_error", "message": "x"}}),
    ],
)
def test_each_form_reports_errors_in_its_own_events(path, event):
    with pytest.raises(EngineFault):
        Run(path).feed(b"data: " + json.dumps(event).encode() + b"\n\n")


@pytest.mark.parametrize(
    ("event", "text_bytes"),
    [
        (b'{"choices":[{"index":0,"delta":{"content":"plain"},"finish_reason":null}]}', 5),
        (b'{"choices":[{"index":0,"delta":{"content":"\\u0061\\u0061"},"finish_reason":null}]}', 2),
        (b'{"choices":[{"index":0,"delta":{"content":"x","reasoning":"yy"},"finish_reason":null}]}', 3),
        (
            b'{"choices":[{"index":0,"delta":{"content":"long decoy"},"finish_reason":null}],'
            b'"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}',
            1,
        ),
        (
            b'{"choices":1,"x":{"choices":[{"index":0,"delta":{"content":"long decoy"},"finish_reason":null}]}}',
            0,
        ),
        (b'{"choices": [{"index": 1, "delta": {"content": "spaced"}}]}', 6),
    ],
)
def test_text_is_counted_exactly_as_the_client_reads_it(event, text_bytes):
    run = Run().feed(chunk("start"), b"data: " + event + b"\n\n")
    assert run.answer.clock.text_bytes == len("start") + text_bytes


@pytest.mark.parametrize(
    "event",
    [
        b': "text":"%b"\ndata: {"choices":[{"index":0,"delta":{"role":"assistant","content":"abc"}}]}\n\n',
        b'data: {"x":{"delta":{"content":"%b"}},"choices":[{"delta":{"role":"assistant","content":"abc"}}]}\n\n',
        b'data: {"choices":[{"text":"%b"}],"choices":[{"delta":{"role":"assistant","content":"abc"}}]}\n\n',
        b'data: {"choices":[{"delta":{"x\\"delta":{"content":"%b"},"refusal":"abc"}}]}\n\n',
    ],
)
def test_a_text_that_nobody_reads_never_counts_however_it_looks(event):
    run = Run().feed(event % b"abc", event % b"a much longer one")
    assert run.answer.clock.text_bytes == 6


def test_only_the_last_of_several_ends_is_held_where_every_event_is_one():
    events = [chunk(text, finish="stop") for text in ("a", "b", "c")]
    run = Run().feed(*events, DONE)
    assert run.out == [b"", events[0], events[1], b""]
    assert run.end() == b"".join([*events, DONE])


@pytest.mark.parametrize("more", [{}, {"logprobs": None}])
def test_an_empty_finish_reason_is_none(more):
    event = chunk("a", finish="", **more)
    run = Run().feed(event, event, chunk(finish="stop"), DONE)
    assert run.out == [event, event, b"", b""]


@pytest.mark.case("C-03")
def test_a_mark_of_byte_order_before_a_stream_hides_no_text():
    raw = b"\xef\xbb\xbf" + chunk("all of it", finish="stop") + DONE
    run = Run().feed(raw)
    assert run.end() == raw
    assert run.answer.clock.text_bytes == len("all of it")


def test_a_finish_reason_is_never_overlooked():
    plain = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":"stop"}]}\n\n'
    run = Run().feed(chunk("start"), plain)
    assert run.answer.finished
    assert run.out[-1] == b""


LARGE = 1_200_000
PLAIN_CHUNK = b'{"index":0,"delta":{"content":"a"}}'


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[' + PLAIN_CHUNK + b'],"x":[' + b"[]," * (LARGE // 3) + b"0]}\n\n",
        b'data: {"choices":[' + PLAIN_CHUNK + b'],"x":[' + b"1," * (4 * LARGE // 3) + b"0]}\n\n",
        b'data: {"choices":[' + b",".join([PLAIN_CHUNK] * (4 * LARGE // len(PLAIN_CHUNK))) + b"]}\n\n",
        b'data: {"x":{' + b'"a":1,' * (2 * LARGE // 6) + b'"b":1}}\n\n',
        b":\n" * (LARGE // 2) + b"\n",
        b"data: {}\r" + b":a\r" * (LARGE // 3) + b"\r",
    ],
    ids=["lists", "numbers", "choices", "members", "comment lines", "lines that end in CR"],
)
def test_a_large_event_that_would_hold_up_everybody_is_refused_before_it_is_parsed(event):
    passage = Passage(DIALECTS["/v1/chat/completions"], Answer(StreamClock(0.0)), client_usage=True)
    with pytest.raises(TargetFault, match="more values or lines"):
        for start in range(0, len(event), 65536):
            passage.feed(event[start : start + 65536], 1.0)


def test_a_large_event_of_one_long_text_goes_through():
    passage = Passage(DIALECTS["/v1/chat/completions"], Answer(StreamClock(0.0)), client_usage=True)
    text = b"def f(x, y): return [x, {y: 1}]\\n" * 20_000
    event = b'data: {"choices":[{"index":0,"delta":{"content":"' + text + b'"}}]}\n\n'
    out = b"".join(passage.feed(event[start : start + 65536], 1.0) for start in range(0, len(event), 65536))
    assert out == event
