"""A slot connection: idle or carrying one job, with nobody reading while it is idle, and every end noticed at once."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from brain_coord.link.slot import Slot, SlotLost, SlotQueue
from brain_node.contract.messages import Accepted, End, Head, Job


class Wire:
    """Both directions of a websocket as an ASGI server would hand them over."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.reading = 0
        self.most_reading = 0
        self.broken = False
        self.told: Callable[[], None] | None = None

    async def receive(self) -> dict[str, Any]:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        try:
            return await self.incoming.get()
        finally:
            self.reading -= 1

    def poll(self) -> dict[str, Any] | None:
        return None if self.incoming.empty() else self.incoming.get_nowait()

    def alert(self, told: Callable[[], None]) -> None:
        if self.incoming.empty():
            self.told = told
        else:
            told()

    def came(self, event: dict[str, Any]) -> None:
        self.incoming.put_nowait(event)
        told, self.told = self.told, None
        if told is not None:
            told()

    async def send(self, event: Any) -> None:
        if self.broken:
            raise RuntimeError("websocket is closed")
        self.sent.append(dict(event))

    def text(self, **message: Any) -> None:
        self.came({"type": "websocket.receive", "text": json.dumps(message)})

    def data(self, data: bytes) -> None:
        self.came({"type": "websocket.receive", "bytes": data})

    def hang_up(self) -> None:
        self.came({"type": "websocket.disconnect", "code": 1006})


class Bench:
    """A pool with one served slot."""

    def __init__(self) -> None:
        self.asked_for: list[int] = []
        self.pool = SlotQueue(self.asked_for.append)
        self.tasks: list[asyncio.Task[None]] = []

    def connect(self) -> tuple[Wire, Slot]:
        wire = Wire()
        slot = Slot(wire)
        self.tasks.append(asyncio.create_task(slot.serve(self.pool)))
        return wire, slot


JOB = Job(id="j1", model="m", path="/v1/chat/completions", deadline_s=5.0, body_bytes=5)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def run_job(wire: Wire, slot: Slot) -> bytes:
    await slot.send_job(JOB, b"hello", 3)
    wire.text(type="accepted", id="j1")
    wire.text(type="head", id="j1", status=200)
    wire.data(b"answer")
    wire.text(type="end", id="j1", ok=True)
    assert isinstance(await slot.read(), Accepted)
    assert isinstance(await slot.read(), Head)
    data = await slot.read()
    assert isinstance(await slot.read(), End)
    slot.give_back()
    assert isinstance(data, bytes)
    return data


async def test_one_connection_carries_job_after_job():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    for _ in range(3):
        assert await bench.pool.take() is slot
        assert await run_job(wire, slot) == b"answer"
        await settle()
    assert wire.most_reading <= 1, "two readers at once would tear messages apart"
    assert bench.asked_for == []


async def test_a_body_goes_out_in_bounded_frames():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await run_job(wire, slot)
    assert [event["bytes"] for event in wire.sent if "bytes" in event] == [b"hel", b"lo"]


async def test_an_idle_slot_whose_node_hangs_up_is_not_handed_out():
    bench = Bench()
    wire, _ = bench.connect()
    await settle()
    wire.hang_up()
    await asyncio.wait(bench.tasks)
    assert bench.pool.open == 0
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.pool.take(), 0.01)


async def test_an_idle_node_that_speaks_out_of_turn_loses_the_connection():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    wire.data(b"unasked")
    await asyncio.wait(bench.tasks)
    assert slot.closed


async def test_a_job_that_waits_gets_the_next_connection_and_asks_for_it():
    bench = Bench()
    waiting = asyncio.create_task(bench.pool.take())
    await settle()
    assert bench.asked_for == [1]
    wire, slot = bench.connect()
    assert await waiting is slot
    assert await run_job(wire, slot) == b"answer"


async def test_a_wait_that_is_given_up_does_not_lose_the_slot():
    bench = Bench()
    given_up = asyncio.create_task(bench.pool.take())
    await settle()
    _, slot = bench.connect()
    await asyncio.sleep(0)  # the slot is handed over in this very step
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await settle()
    assert await asyncio.wait_for(bench.pool.take(), 1.0) is slot


async def test_a_connection_that_drops_ends_its_job_at_once():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    wire.hang_up()
    with pytest.raises(SlotLost):
        await slot.read()
    slot.give_back()
    await asyncio.wait(bench.tasks)


async def test_a_session_that_ends_wakes_a_job_that_reads_from_a_silent_node():
    bench = Bench()
    _, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    reading = asyncio.create_task(slot.read())
    await settle()
    bench.pool.close("silent for three heartbeats")
    with pytest.raises(SlotLost):
        await asyncio.wait_for(reading, 1.0)
    slot.give_back()
    await asyncio.wait(bench.tasks)


async def test_a_session_that_ends_wakes_a_job_that_reads_by_itself():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    wire.text(type="accepted", id="j1")
    assert isinstance(await slot.read(), Accepted)
    reading = asyncio.create_task(slot.read())
    await settle()
    bench.pool.close("superseded")
    with pytest.raises(SlotLost):
        await asyncio.wait_for(reading, 1.0)


async def test_a_cancel_from_outside_is_not_taken_for_a_lost_slot():
    bench = Bench()
    _, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    reading = asyncio.create_task(slot.read())
    await settle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not slot.closed


async def test_cancelling_a_job_waits_for_its_end_and_keeps_the_connection():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    wire.text(type="accepted", id="j1")
    wire.data(b"more that was on its way")
    wire.text(type="end", id="j1", ok=False, cause="cancelled")
    await slot.cancel()
    slot.give_back()
    await settle()
    assert json.loads(wire.sent[-1]["text"]) == {"type": "cancel", "id": "j1"}
    assert not slot.closed
    assert await asyncio.wait_for(bench.pool.take(), 1.0) is slot


async def test_a_node_that_does_not_answer_a_cancel_loses_the_connection(monkeypatch):
    monkeypatch.setattr("brain_coord.link.slot.CANCEL_S", 0.02)
    bench = Bench()
    _, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    await slot.cancel()
    slot.give_back()
    await asyncio.wait(bench.tasks)
    assert slot.closed


async def test_an_answer_to_another_job_ends_the_connection():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    wire.text(type="accepted", id="another")
    with pytest.raises(SlotLost, match="another job"):
        await slot.read()
    assert slot.closed


async def test_a_frame_that_is_no_message_ends_the_connection():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await slot.send_job(JOB, b"hello", 3)
    wire.text(type="head", id="j1", status="OK")
    with pytest.raises(SlotLost, match="protocol"):
        await slot.read()


async def test_a_socket_that_breaks_while_the_body_is_sent_is_a_lost_slot():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    wire.broken = True
    with pytest.raises(SlotLost):
        await slot.send_job(JOB, b"hello", 3)
    slot.give_back()
    await asyncio.wait(bench.tasks)
    assert bench.pool.open == 0
