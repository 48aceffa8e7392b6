"""The client's side of a stream: it begins late, keeps alive while nothing comes, and ends once."""

import asyncio
import weakref

from brain_coord.gateway import sink
from brain_coord.gateway.sink import KEEP_ALIVE, ClientStream
from tests.support.eventually import eventually


class Wire:
    """A connection that keeps what it is given; `room` is taken away by a client that does not read."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, bytes]] = []
        self.body: list[bytes] = []
        self.ended = False
        self.tried = 0
        self.room = asyncio.Event()
        self.room.set()
        self.flow = self

    @property
    def write_paused(self) -> bool:
        return not self.room.is_set()

    async def drain(self) -> None:
        self.tried += 1
        await self.room.wait()

    def begin(self, status: int, lines: bytes) -> None:
        self.heads.append((status, lines))

    def write(self, body: bytes, *, more: bool) -> None:
        assert self.heads, "nothing leaves before the head"
        self.body.append(body)
        self.ended = not more


def stream_on(wire: Wire, keepalive_s: float = 60.0) -> ClientStream:
    return ClientStream(wire, lambda: b"x-a: 1\r\n", keepalive_s=keepalive_s)


async def test_nothing_leaves_before_the_first_write_and_the_headers_are_those_of_that_moment():
    wire = Wire()
    stream = stream_on(wire)
    committed = []
    stream.on_commit = lambda: committed.append(len(wire.body))
    assert not stream.begun
    await stream.write(b"one")
    await stream.write(b"two")
    assert not wire.ended
    await stream.end(b"end")
    assert committed == [0]
    assert wire.heads == [(200, sink.EVENT_STREAM + b"x-a: 1\r\n")]
    assert wire.body == [b"one", b"two", b"end"]
    assert wire.ended


async def test_comments_fill_the_silence_before_and_between_writes_and_never_follow_the_end():
    wire = Wire()
    stream = stream_on(wire, keepalive_s=0.05)
    await eventually(lambda: wire.body.count(KEEP_ALIVE) >= 2)
    assert stream.begun
    await stream.write(b"one")
    seen = wire.body.count(KEEP_ALIVE)
    await eventually(lambda: wire.body.count(KEEP_ALIVE) > seen)
    await stream.end(b"end")
    await asyncio.sleep(0.2)
    assert wire.body[-1] == b"end"
    assert len(wire.heads) == 1


async def test_only_time_without_a_write_counts_as_silence(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(sink, "monotonic", lambda: now)
    wire = Wire()
    stream = stream_on(wire, keepalive_s=0.05)  # looked at about so often, on a clock that only the test moves
    for _ in range(10):
        await stream.write(b"x")
        now += 0.04
        await asyncio.sleep(0.06)
    assert KEEP_ALIVE not in wire.body
    now += 0.02
    await eventually(lambda: KEEP_ALIVE in wire.body)
    await stream.end(b"")


async def test_a_comment_that_cannot_leave_is_not_followed_by_more_and_not_overtaken():
    wire = Wire()
    wire.room.clear()
    stream = stream_on(wire, keepalive_s=0.05)
    await eventually(lambda: wire.tried)
    await asyncio.sleep(0.2)
    assert wire.tried == 1
    writing = asyncio.ensure_future(stream.write(b"one"))
    await asyncio.sleep(0.1)
    wire.room.set()
    await writing
    await stream.end(b"end")
    assert wire.body == [KEEP_ALIVE, b"one", b"end"]


async def test_closing_stops_the_comments_and_leaves_the_answer_as_it_is():
    wire = Wire()
    stream = stream_on(wire, keepalive_s=0.05)
    await stream.close()
    await asyncio.sleep(0.2)
    assert wire.heads == []
    assert not stream.begun


async def test_whoever_is_told_of_the_commit_is_let_go_with_it():
    class Told:
        def __call__(self) -> None:
            pass

    for commits in (True, False):
        stream, told = stream_on(Wire()), Told()
        stream.on_commit = told
        gone = weakref.ref(told)
        del told
        if commits:
            await stream.write(b"one")
        else:
            await stream.close()
        assert gone() is None
        await stream.close()


async def test_events_are_sent_at_once_where_nothing_has_to_be_waited_for():
    wire = Wire()
    stream = stream_on(wire)
    assert stream.write_now(b"one")
    assert stream.write_now(b"two")
    wire.room.clear()
    assert not stream.write_now(b"three")
    wire.room.set()
    await stream.end(b"end")
    assert wire.body == [b"one", b"two", b"end"]
