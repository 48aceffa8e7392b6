"""What leaves on a slot together, and what waits for nobody."""

import asyncio
from collections.abc import Callable

import orjson

from brain_node.contract.messages import Job
from brain_node.link.slot import BINARY, Line, Slot

JOB = {"type": "job", "id": "j1", "model": "m", "path": "/v1/chat/completions", "deadline_s": 9.0, "body_bytes": 0}


class Socket:
    """Keeps what each write held."""

    paused = False

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []
        self._out: list[bytes] = []

    def put(self, data: bytes, kind: int = BINARY, /) -> None:
        self._out.append(data if kind == BINARY else orjson.loads(data)["type"].encode())

    def flush(self) -> None:
        if self._out:
            self.writes.append(self._out)
            self._out = []


class Started:
    """A job that was started and does nothing by itself."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def cancel(self) -> None:
        self.line.end("cancelled")

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


class Engine:
    """Accepts every job, and lets a test see to its answer."""

    def __init__(self, then: Callable[[Line], object] = lambda _: None) -> None:
        self.then = then

    def start(self, job: Job, body: tuple[bytes, ...], line: Line) -> Started:
        line.accepted()
        self.then(line)
        return Started(line)


def slot_with(engine: Engine) -> tuple[Slot, Socket, list[bool]]:
    socket, busy = Socket(), []
    return Slot(socket, engine, 100, busy.append), socket, busy


def answer(line: Line) -> None:
    line.head(200, "text/event-stream", None)
    line.data(b"data: one\n\n")
    line.end(None)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_job_is_told_to_be_taken_at_once_when_its_engine_takes_its_time():
    slot, socket, _ = slot_with(Engine())
    slot.text_came(orjson.dumps(JOB))
    await turns(2)
    assert socket.writes == [[b"accepted"]]


async def test_what_an_engine_answers_at_once_leaves_in_one_write_with_the_word_that_the_job_is_taken():
    loop = asyncio.get_running_loop()
    slot, socket, busy = slot_with(Engine(lambda line: loop.call_soon(answer, line)))
    slot.text_came(orjson.dumps(JOB))
    await turns(3)
    assert socket.writes == [[b"accepted", b"head", b"data: one\n\n", b"end"]]
    assert busy == [True, False]


async def test_the_next_job_may_come_as_soon_as_the_end_of_the_one_before_has_left():
    slot, socket, busy = slot_with(Engine(answer))
    for _ in range(2):
        slot.text_came(orjson.dumps(JOB))
    assert [kinds[-1] for kinds in socket.writes] == [b"end", b"end"]
    assert busy == [True, False, True, False]


async def test_a_cancelled_job_ends_in_the_same_write_as_the_word_that_it_was_taken():
    slot, socket, _ = slot_with(Engine())
    slot.text_came(orjson.dumps(JOB))
    slot.text_came(b'{"type":"cancel","id":"j1"}')
    await turns(3)
    assert socket.writes == [[b"accepted", b"end"]]
