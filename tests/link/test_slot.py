"""A slot connection: idle or carrying one job, with nobody reading while it is idle, and every end noticed at once."""

import asyncio
import json
from typing import Any

import pytest

from brain_coord.classes.target import ReplyHead
from brain_coord.link.slot import KEPT_BYTES, READ_AHEAD_BYTES, Receiver, Slot, SlotLost, SlotQueue
from brain_coord.link.slot_text import DONE, TAKEN, Over


class Wire:
    """A websocket that hands over what a test lets come, and keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes | None]] = []
        self.broken = False
        self.held = False
        self.receiver: Receiver | None = None

    def hand_to(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def hold(self) -> None:
        self.held = True

    def go_on(self) -> None:
        self.held = False

    async def send_frames(self, text: bytes | None, data: bytes | memoryview | None) -> None:
        if self.broken:
            raise RuntimeError("websocket is closed")
        self.sent.append((text, None if data is None else bytes(data)))

    def came(self, frame: bytes | str) -> None:
        assert self.receiver is not None
        self.receiver.came(frame)

    def text(self, **message: Any) -> None:
        self.came(json.dumps(message))

    def data(self, data: bytes) -> None:
        self.came(data)

    def hang_up(self) -> None:
        assert self.receiver is not None
        self.receiver.ended()


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


async def send_job(slot: Slot) -> None:
    await slot.send_job("j1", "m", "/v1/chat/completions", 5.0, b"hello", 3)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def sent_job() -> tuple[Bench, Wire, Slot]:
    """A slot that a job was sent to."""
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await send_job(slot)
    return bench, wire, slot


async def run_job(wire: Wire, slot: Slot) -> bytes:
    await send_job(slot)
    wire.text(type="accepted", id="j1")
    wire.text(type="head", id="j1", status=200)
    wire.data(b"answer")
    wire.text(type="end", id="j1", ok=True)
    assert await slot.read() is TAKEN
    assert isinstance(await slot.read(), ReplyHead)
    data = await slot.read()
    assert await slot.read() == DONE
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
    assert bench.asked_for == []


async def test_a_body_goes_out_in_bounded_frames():
    bench = Bench()
    wire, slot = bench.connect()
    await settle()
    await bench.pool.take()
    await run_job(wire, slot)
    assert [data for _, data in wire.sent] == [b"hel", b"lo"]


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
    bench, wire, slot = await sent_job()
    wire.hang_up()
    with pytest.raises(SlotLost):
        await slot.read()
    slot.give_back()
    await asyncio.wait(bench.tasks)


async def test_a_session_that_ends_wakes_a_job_that_reads_from_a_silent_node():
    bench, _, slot = await sent_job()
    reading = asyncio.create_task(slot.read())
    await settle()
    bench.pool.close("silent for three heartbeats")
    with pytest.raises(SlotLost):
        await asyncio.wait_for(reading, 1.0)
    slot.give_back()
    await asyncio.wait(bench.tasks)


async def test_a_session_that_ends_wakes_a_job_that_reads_by_itself():
    bench, wire, slot = await sent_job()
    wire.text(type="accepted", id="j1")
    assert await slot.read() is TAKEN
    reading = asyncio.create_task(slot.read())
    await settle()
    bench.pool.close("superseded")
    with pytest.raises(SlotLost):
        await asyncio.wait_for(reading, 1.0)


async def test_a_cancel_from_outside_is_not_taken_for_a_lost_slot():
    _, _, slot = await sent_job()
    reading = asyncio.create_task(slot.read())
    await settle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not slot.closed


async def test_cancelling_a_job_waits_for_its_end_and_keeps_the_connection():
    bench, wire, slot = await sent_job()
    wire.text(type="accepted", id="j1")
    wire.data(b"more that was on its way")
    wire.text(type="end", id="j1", ok=False, cause="cancelled")
    await slot.cancel()
    slot.give_back()
    await settle()
    assert json.loads(wire.sent[-1][0] or b"") == {"type": "cancel", "id": "j1"}
    assert not slot.closed
    assert await asyncio.wait_for(bench.pool.take(), 1.0) is slot


async def test_a_node_that_does_not_answer_a_cancel_loses_the_connection(monkeypatch):
    monkeypatch.setattr("brain_coord.link.slot.CANCEL_S", 0.02)
    bench, _, slot = await sent_job()
    await slot.cancel()
    slot.give_back()
    await asyncio.wait(bench.tasks)
    assert slot.closed


async def test_an_answer_to_another_job_ends_the_connection():
    _, wire, slot = await sent_job()
    wire.text(type="accepted", id="another")
    with pytest.raises(SlotLost, match="another job"):
        await slot.read()
    assert slot.closed


async def test_a_frame_that_is_no_message_ends_the_connection():
    _, wire, slot = await sent_job()
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
        await send_job(slot)
    slot.give_back()
    await asyncio.wait(bench.tasks)
    assert bench.pool.open == 0


async def taken_slot() -> tuple[Wire, Slot]:
    """A slot whose job was accepted and answers."""
    _, wire, slot = await sent_job()
    wire.text(type="accepted", id="j1")
    assert await slot.read() is TAKEN
    return wire, slot


async def test_an_answer_passes_on_within_the_call_that_brings_it():
    wire, slot = await taken_slot()
    got: list[bytes] = []
    wire.data(b"before anybody asked, ")
    passing = asyncio.create_task(slot.read(got.append))
    await settle()
    wire.data(b"at once, ")
    wire.data(b"and at once")
    assert got == [b"before anybody asked, ", b"at once, ", b"and at once"]
    wire.text(type="later", id="j1")
    wire.data(b" after a message that nobody knows")
    wire.text(type="end", id="j1", ok=False, cause="engine_lost")
    assert await passing == Over(ok=False, cause="engine_lost")
    assert got[3:] == [b" after a message that nobody knows"]
    slot.give_back()
    assert not slot.closed


async def test_who_has_to_wait_gets_nothing_more_until_then_and_a_node_that_sends_on_is_held():
    wire, slot = await taken_slot()
    room, got = asyncio.Event(), []

    async def wait(data: bytes) -> None:
        await room.wait()
        got.append(len(data))

    passing = asyncio.create_task(slot.read(wait))
    await settle()
    for _ in range(3):
        wire.data(b"x" * (READ_AHEAD_BYTES // 2))
        await settle()
    assert not wire.held
    wire.data(b"one too many")
    assert wire.held
    wire.text(type="end", id="j1", ok=True)
    room.set()
    assert await passing == DONE
    assert got == [READ_AHEAD_BYTES // 2] * 3 + [len(b"one too many")]
    assert not wire.held


async def test_what_is_wrong_with_an_answer_reaches_the_job_and_ends_nothing_else():
    wire, slot = await taken_slot()

    def take(data: bytes) -> None:
        raise ValueError(data)

    passing = asyncio.create_task(slot.read(take))
    await settle()
    wire.data(b"wrong")
    wire.data(b"and more")
    with pytest.raises(ValueError, match="wrong"):
        await passing
    assert await slot.read() == b"and more"
    assert not slot.closed


async def test_a_job_that_is_cancelled_while_something_comes_takes_no_more():
    wire, slot = await taken_slot()
    got: list[bytes] = []

    async def never() -> None:
        raise AssertionError

    def take(data: bytes) -> Any:
        got.append(data)
        return never()

    passing = asyncio.create_task(slot.read(take))
    await settle()
    wire.data(b"one")
    passing.cancel()
    wire.data(b"two")
    with pytest.raises(asyncio.CancelledError):
        await passing
    assert got == [b"one"]
    wire.text(type="end", id="j1", ok=False, cause="cancelled")
    await slot.cancel()
    slot.give_back()
    assert not slot.closed


async def test_a_node_that_hangs_up_behind_its_answer_has_answered():
    wire, slot = await taken_slot()
    got: list[bytes] = []
    passing = asyncio.create_task(slot.read(got.append))
    await settle()
    wire.data(b"all of it")
    wire.text(type="end", id="j1", ok=True)
    wire.hang_up()
    assert await passing == DONE
    slot.give_back()
    assert slot.closed


async def test_a_node_that_speaks_on_behind_its_end_is_not_given_another_job():
    wire, slot = await taken_slot()
    wire.text(type="end", id="j1", ok=True)
    wire.data(b"and another thing")
    assert await slot.read() == DONE
    slot.give_back()
    assert slot.closed


async def test_frames_of_nothing_count_too_while_nobody_takes_them():
    wire, slot = await taken_slot()
    for _ in range(READ_AHEAD_BYTES // KEPT_BYTES):
        wire.data(b"")
    assert not wire.held
    wire.data(b"")
    assert wire.held
    slot.close()
