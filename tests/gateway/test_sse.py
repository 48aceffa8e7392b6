"""Event streams on bytes: all line ends, all cuts, multi-line data, and members added without touching the rest."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.gateway import sse

ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
LINES = st.sampled_from([b"data: one", b"data:two", b"data", b": a comment", b":", b"event: x", b"id: 7", b"retry: 10"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[list[bytes]]]:
    """A stream of events, each with its own line end, and the lines of each event."""
    blocks, raw = [], b""
    for _ in range(draw(st.integers(1, 5))):
        lines, end = draw(st.lists(LINES, min_size=1, max_size=4)), draw(ENDS)
        blocks.append(lines)
        raw += end.join(lines) + end + end
    return raw, blocks


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
@pytest.mark.case("C-03")
def test_events_come_out_the_same_however_the_stream_is_cut(stream, places):
    raw, blocks = stream
    splitter = sse.EventSplitter(10_000)
    events = [event for piece in cut(raw, places) for event in splitter.feed(piece)]
    rest = splitter.end()
    assert b"".join(events) + rest == raw
    assert rest.strip() == b""
    told = [data for event in events if (data := sse.data_of(event)) is not None]
    expected = [
        b"\n".join(line.partition(b":")[2].removeprefix(b" ") for line in lines if line.startswith(b"data"))
        for lines in blocks
        if any(line.startswith(b"data") for line in lines)
    ]
    assert told == expected


@pytest.mark.case("C-03")
def test_an_event_that_ends_with_a_bare_cr_does_not_wait_for_the_next():
    splitter = sse.EventSplitter(100)
    assert splitter.feed(b"data: 1\r\r") == [b"data: 1\r\r"]
    assert splitter.feed(b"data: 2\r\n\r") == [b"data: 2\r\n\r"]
    assert splitter.feed(b"\ndata: 3\n\n") == [b"\ndata: 3\n\n"]
    assert sse.data_of(b"\ndata: 3\n\n") == b"3"


def test_an_event_without_an_end_is_refused_before_it_fills_the_memory():
    splitter = sse.EventSplitter(1000)
    with pytest.raises(sse.EventTooLarge):
        for _ in range(200):
            splitter.feed(b"data: xxxx")


def test_blank_lines_between_events_are_kept():
    raw = b"data: 1\n\n\n\n\ndata: 2\n\n"
    splitter = sse.EventSplitter(100)
    assert b"".join(splitter.feed(raw)) == raw


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b'data: {"a":1}\n\n', b'data: {"a":1,"brain":2}\n\n'),
        (b"data: {}\n\n", b'data: {"brain":2}\n\n'),
        (b'event: x\r\ndata: {"a":1} \r\n\r\n', b'event: x\r\ndata: {"a":1,"brain":2} \r\n\r\n'),
        (b'data: {"a":1,\ndata: "b":{}}\n\n', b'data: {"a":1,\ndata: "b":{},"brain":2}\n\n'),
        (b'data: {"a":1}\nid: 7}\n\n', b'data: {"a":1,"brain":2}\nid: 7}\n\n'),
        (b'data: {"image":"data:x"}\n\n', b'data: {"image":"data:x","brain":2}\n\n'),
        (b"data: [1]\n\n", None),
        (b": {}\n\n", None),
    ],
)
def test_a_member_is_added_and_nothing_else_changes(event, expected):
    spliced = sse.splice(event, b'"brain":2')
    assert spliced == expected
    if spliced is not None:
        assert json.loads(sse.data_of(spliced) or b"")["brain"] == 2
