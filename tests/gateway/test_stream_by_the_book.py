"""Streams of engines read by a plain reader that parses every event: the fast one says the same of each, however it is cut."""

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.target import TargetFault
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.dialects import DIALECTS
from brain_coord.gateway.dialects.base import COUNTED
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.passage import Passage
from brain_coord.measure.speed import StreamClock
from tests.gateway.engine_streams import STREAMS

CHAT, COMPLETIONS, RESPONSES, MESSAGES = STREAMS

# --- the plain reader -------------------------------------------------------------------------------------------------


def blocks(raw: bytes) -> list[bytes]:
    """Events as WHATWG HTML has them: lines up to an empty one."""
    found, block = [], b""
    for line in re.findall(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z", raw):
        block += line
        if not line.strip(b"\r\n"):
            found.append(block)
            block = b""
    return [*found, block] if block else found


def data_of(block: bytes) -> str | None:
    lines = re.split(r"\r\n|\n|\r", block.decode("utf-8", "surrogatepass"))
    values = [line.partition(":")[2].removeprefix(" ") for line in lines if line.partition(":")[0] == "data"]
    return "\n".join(values) if values else None


def size(text) -> int:
    return len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0


def counts(usage, prompt: str, completion: str) -> tuple | None:
    if not isinstance(usage, dict):
        return None
    return tuple(
        number if type(number := usage.get(name)) is int and 0 <= number < COUNTED else None
        for name in (prompt, completion)
    )


def meaning(path: str, data: str | None) -> tuple[str, int, tuple | None]:
    """The kind of an event, the size of its text, and its usage."""
    if data is None:
        return "quiet", 0, None
    if data == "[DONE]" and path != MESSAGES:
        return "done", 0, None
    try:
        event = json.loads(data)
    except ValueError:
        return "error", 0, None
    if not isinstance(event, dict):
        return "error", 0, None
    if event.get("error") is not None or event.get("type") in ("error", "response.failed"):
        return "error", 0, None
    return {CHAT: of_choices, COMPLETIONS: of_choices, RESPONSES: of_response, MESSAGES: of_message}[path](event)


def of_choices(event) -> tuple[str, int, tuple | None]:
    usage, text, called = counts(event.get("usage"), "prompt_tokens", "completion_tokens"), 0, False
    choices = event.get("choices") or []
    for choice in choices:
        delta = choice.get("delta") or {}
        text += size(choice.get("text"))
        text += sum(size(delta.get(name)) for name in ("content", "reasoning", "reasoning_content", "refusal"))
        for call in delta.get("tool_calls") or []:
            called = True
            text += size(call["function"].get("name")) + size(call["function"].get("arguments"))
    if not choices:
        return "quiet" if usage is None else "usage", 0, usage
    if any(choice.get("finish_reason") for choice in choices):
        return "finish", text, usage
    return "output" if text or called else "quiet", text, usage


def of_response(event) -> tuple[str, int, tuple | None]:
    if event["type"].endswith(".delta"):
        return "output" if event["delta"] else "quiet", size(event["delta"]), None
    if event["type"] == "response.completed":
        return "end", 0, counts(event["response"].get("usage"), "input_tokens", "output_tokens")
    return "quiet", 0, None


def of_message(event) -> tuple[str, int, tuple | None]:
    kind = event["type"]
    if kind in ("content_block_delta", "content_block_start"):
        part = event.get("delta") or event["content_block"]
        text = sum(size(part.get(name)) for name in ("text", "thinking", "partial_json", "name"))
        return "output" if text else "quiet", text, None
    if kind == "message_start":
        return "quiet", 0, counts(event["message"].get("usage"), "input_tokens", "output_tokens")
    if kind == "message_delta":
        return "finish", 0, counts(event.get("usage"), "input_tokens", "output_tokens")
    return "done" if kind == "message_stop" else "quiet", 0, None


@dataclass
class Plain:
    """What should come of a stream, event by event."""

    path: str
    client_usage: bool
    passed: bytes = b""
    held: list[bytes] = field(default_factory=list)
    committed: bool = False
    finished: bool = False
    done: bool = False
    usage: list = field(default_factory=lambda: [None, None])
    times: list[float] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)

    def take(self, block: bytes, now: float) -> bool:
        """Whether the engine may go on after this event."""
        kind, text, usage = ("quiet", 0, None) if self.done else meaning(self.path, data_of(block))
        self.usage = [old if new is None else new for old, new in zip(self.usage, usage or (None, None), strict=True)]
        if kind == "error":
            return False
        if kind == "output" or (kind in ("finish", "end") and (text or not self.committed)):
            self.times.append(now)
            self.texts.append(text)
            self.passed += b"".join(self.held)
            self.held, self.committed, self.finished = [], True, False
        self.finished = self.finished or kind in ("finish", "end")
        self.done = self.done or kind in ("done", "end")
        if kind == "output" or (kind == "quiet" and self.committed and not self.held):
            self.passed += block
        elif kind != "usage" or self.client_usage:
            self.held.append(block)
        return True

    @property
    def whole(self) -> bool:
        return self.finished or (self.done and self.committed)


# --- what engines write -----------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5) | st.sampled_from(
    ["a", " the", '"', "\\", '"}', "\n\n", "data: ", "\r", "漢字", "🌍", "\ud83c", "}]}", '","', "null"]
)
MAYBE = st.none() | st.booleans()


@st.composite
def choice_event(draw: st.DrawFn, path: str) -> dict:
    """One event with choices, in the forms of vLLM."""
    kind = draw(st.sampled_from(["text"] * 6 + ["finish", "role", "empty", "reason", "call", "refuse", "two", "usage"]))
    index = draw(st.sampled_from([0, 0, 0, 1]))
    choice: dict = {"index": index, "logprobs": None, "finish_reason": None}
    delta: dict = {}
    match kind:
        case "text" | "two":
            delta = {"content": draw(TEXT)}
        case "role":
            delta = {"role": "assistant", "content": draw(st.sampled_from(["", None]))}
        case "empty":
            delta = draw(st.sampled_from([{}, {"content": ""}, {"content": None}, {"tool_calls": []}]))
        case "reason":
            delta = {draw(st.sampled_from(["reasoning", "reasoning_content"])): draw(TEXT), "content": None}
        case "call":
            function = draw(
                st.sampled_from([{"name": "f", "arguments": ""}, {"arguments": '{"a'}, {"arguments": '":1}'}])
            )
            delta = {"tool_calls": [{"index": 0, "function": function}]}
        case "refuse":
            delta = {"refusal": draw(TEXT)}
        case "finish":
            delta = draw(st.sampled_from([{}, {"content": ""}, {"content": "end"}]))
            choice |= {"finish_reason": draw(st.sampled_from(["stop", "length"]))}
            choice |= {"stop_reason": draw(st.sampled_from([None, "END", 128001]))}
    if path == COMPLETIONS:
        choice["text"] = delta.get("content") or ""
    else:
        choice["delta"] = delta
    if draw(st.integers(0, 5)) == 0:
        choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    if draw(st.integers(0, 3)) == 0:
        choice["token_ids"] = draw(st.sampled_from([None, [7], [12, 128000]]))
    choices = [choice]
    if kind == "two":
        choices.append({**choice, "index": 1 - index})
    event: dict = {"choices": [] if kind == "usage" else choices}
    if kind == "usage" or draw(st.integers(0, 7)) == 0:
        completion = draw(st.sampled_from([0, 3, 25, 10**14, 10**20, -1, None, 2.5]))
        event["usage"] = {"prompt_tokens": 3, "total_tokens": 9, "completion_tokens": completion}
    elif draw(st.integers(0, 5)) == 0:
        event["usage"] = None
    return event


RESPONSE = {"id": "resp_1", "instructions": None, "usage": {"input_tokens": 3, "output_tokens": 4}}
BLOCKS = st.sampled_from(
    [{"type": "text", "text": ""}, {"type": "tool_use", "id": "t", "name": "f"}, {"type": "thinking", "thinking": ""}]
)
FRAMES = {
    RESPONSES: st.sampled_from(
        [
            {"type": "response.created", "response": RESPONSE},
            {"type": "response.output_item.added", "item": {"content": []}},
            {"type": "response.output_text.done", "text": "all of it"},
            {"type": "response.completed", "response": RESPONSE},
        ]
    )
    | st.builds(
        lambda name, text: {"type": f"response.{name}.delta", "delta": text},
        st.sampled_from(["output_text", "reasoning_text", "function_call_arguments"]),
        TEXT | st.just(""),
    ),
    MESSAGES: st.sampled_from(
        [
            {"type": "ping"},
            {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ]
    )
    | st.builds(lambda block: {"type": "content_block_start", "content_block": block}, BLOCKS)
    | st.builds(
        lambda name, text: {"type": "content_block_delta", "delta": {"type": "text_delta", name: text}},
        st.sampled_from(["text", "thinking", "partial_json"]),
        TEXT | st.just(""),
    ),
}
EVENTS = {CHAT: choice_event(CHAT), COMPLETIONS: choice_event(COMPLETIONS), **FRAMES}
COMMENTS = st.sampled_from([b": keep-alive", b":", b"retry: 10", b"id: 7", b": {\n: }", b": data: [DONE]", b""])
ERROR = {"error": {"message": "died", "type": "x"}}
STARTS = st.sampled_from(
    [
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1795990468, "model": "known"},
        {"id": "chatcmpl-2", "object": "chat.completion.chunk", "created": 7, "model": "known"},
        {"model": "known", "id": "a"},
        {"id": 'a"b', "model": "é"},
        {},
    ]
)


def plain_choice(path: str, text: str) -> dict:
    said = {"text": text} if path == COMPLETIONS else {"delta": {"content": text}}
    return {"index": 0, **said, "logprobs": None, "finish_reason": None}


@st.composite
def written(draw: st.DrawFn, path: str) -> bytes:
    """A stream as some engine may write it."""
    start, spaced, ascii_only = draw(STARTS), draw(st.booleans()), draw(st.booleans())
    turned, end = draw(st.integers(0, 4)) == 0, draw(st.sampled_from([b"\n"] * 4 + [b"\r\n", b"\r", b"mixed"]))
    raw = draw(st.sampled_from([b""] * 5 + [b"\n", b"\xef\xbb\xbf: a mark of order" + b"\n\n"]))
    events = draw(st.lists(EVENTS[path] | COMMENTS | st.just("again"), max_size=draw(st.sampled_from([0, 3, 14]))))
    if draw(st.integers(0, 9)) == 0:
        events.insert(draw(st.integers(0, len(events))), draw(st.sampled_from([ERROR, b"data: {broken", b"data: 7"])))
    if path in (CHAT, COMPLETIONS):
        events += [{"choices": [plain_choice(path, text)]} for text in draw(st.lists(TEXT | st.just("a"), max_size=5))]
    if draw(st.integers(0, 5)):
        finish: dict = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}}
        events += {CHAT: [finish, usage], COMPLETIONS: [finish, usage]}.get(path, [])
    if draw(st.integers(0, 5)):
        events += [b"data: [DONE]"]
    if draw(st.integers(0, 5)) == 0:
        events += draw(st.lists(EVENTS[path], max_size=3))
    last = b""
    for event in events:
        if event == "again":
            block = last
        elif isinstance(event, bytes):
            block = event + b"\n\n"
        else:
            begun = {**event, **start} if turned else {**start, **event}
            block = data_lines(begun, spaced=spaced, ascii_only=ascii_only, apart=draw(st.integers(0, 9)) == 0)
            if path in (RESPONSES, MESSAGES):
                block = b"event: %b\n" % str(event.get("type")).encode() + block
        last = block
        line_end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) if end == b"mixed" else end
        raw += block.replace(b"\n", line_end)
    return raw[:-1] if raw and draw(st.integers(0, 9)) == 0 else raw


def data_lines(event: dict, *, spaced: bool, ascii_only: bool, apart: bool) -> bytes:
    separators = None if spaced else (",", ":")
    text = json.dumps(event, ensure_ascii=ascii_only, separators=separators, indent=1 if apart else None)
    try:
        data = text.encode()
    except UnicodeEncodeError:  # half a character has no other form
        data = json.dumps(event, separators=separators, indent=1 if apart else None).encode()
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


# --- both of them -----------------------------------------------------------------------------------------------------


def read_plainly(path: str, raw: bytes, pieces: list[bytes], *, client_usage: bool) -> tuple[Plain, type | None]:
    plain, at, ends = Plain(path, client_usage), 0, [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    for block in blocks(raw):
        at += len(block)
        # Without a blank line behind it, it is known to be whole only once the stream ends.
        whole = re.search(rb"[\r\n]{2}\Z", block)
        now = next(number for number, end in enumerate(ends) if end >= at) if whole else len(pieces)
        if not plain.take(block, float(now)):
            return plain, EngineFault
    return plain, None if plain.whole else TargetFault


def check(path: str, raw: bytes, pieces: list[bytes], *, client_usage: bool, timed: bool = True) -> None:
    plain, fault = read_plainly(path, raw, pieces, client_usage=client_usage)
    answer = Answer(StreamClock(0.0))
    passage = Passage(DIALECTS[path], answer, client_usage=client_usage)
    out, tail, raised = [], None, None
    try:
        for now, piece in enumerate(pieces, 1):
            out.append(passage.feed(piece, float(now)))
        ready, tail = passage.end(float(len(pieces)))
        out.append(ready)
    except (EngineFault, TargetFault) as error:
        raised = type(error)
        out.append(passage.out())
    said = b"".join(out)
    missing = b"" if re.search(rb"[\r\n]{2}\Z", raw) else b"\n\n"  # a last blank line that was forgotten is put in
    assert raised == fault
    if fault is None:
        assert tail is not None
        whole, expected = said + b"".join(tail.events), plain.passed + b"".join(plain.held)
        if not client_usage:  # blank lines before an event may leave with it
            whole, expected = lines(whole), lines(expected)
        assert whole in (expected, expected + missing)
        assert (tail.done, answer.finished) == (plain.done, True)
    assert plain.passed.startswith(said) or not client_usage
    clock = answer.clock
    assert list(answer.usage) == plain.usage
    assert (clock.output_events, clock.text_bytes) == (len(plain.times), sum(plain.texts))
    if plain.times:
        assert clock.first_text_bytes == plain.texts[0]
        if timed:
            assert (clock.first_output, clock.last_output) == (plain.times[0], plain.times[-1])


def lines(data: bytes) -> bytes:
    return b"\n".join(line for line in re.split(rb"[\r\n]+", data) if line)


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("path", STREAMS)
@given(data=st.data(), client_usage=st.booleans(), places=st.lists(st.integers(0, 5000), max_size=6))
def test_every_stream_is_read_as_by_the_book(path, data, client_usage, places):
    raw = data.draw(written(path))
    check(path, raw, cut(raw, places), client_usage=client_usage, timed=b"\r" not in raw)


@pytest.mark.parametrize("path", STREAMS)
def test_it_makes_no_difference_where_a_stream_is_cut(path):
    raw = b"".join([*STREAMS[path][:-1], b": ping\n\n", STREAMS[path][-1]])
    for at in range(len(raw)):
        check(path, raw, cut(raw, [at]), client_usage=bool(at % 2))
    check(path, raw, cut(raw, [*range(len(raw))]), client_usage=False)
