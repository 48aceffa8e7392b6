"""The short way for data frames gives what the library would give, for every way in which bytes can come."""

import asyncio
import base64
import hashlib
import struct

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from brain_node.link.wire import SlotConnection
from tests.support.eventually import eventually
from tests.support.node_doubles import Linked, Runner
from tests.support.raw_coordinator import RawCoordinator
from tests.support.scripted_server import ScriptedServer

TEXT, BINARY, CONT, CLOSE, PING = 1, 2, 0, 8, 9
LIMIT = 70_000


def frame(kind: int, data: bytes, *, fin: bool = True, mask: int = 0) -> bytes:
    head, size = bytes([(0x80 if fin else 0) | kind]), len(data)
    if size < 126:
        return head + bytes([mask | size]) + data
    if size < 65536:
        return head + bytes([mask | 126]) + struct.pack("!H", size) + data
    return head + bytes([mask | 127]) + struct.pack("!Q", size) + data


def accepted(head: bytes) -> bytes:
    key = next(line[18:].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
    proof = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return upgrade + b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"


def talking(*pieces: bytes, with_answer: bool = False, hangs_up: bool = False):
    """Accept the handshake and send the pieces, the first one in the same write if so told."""

    async def answer(head, writer):
        first = accepted(head)
        rest = list(pieces)
        if with_answer:
            first += rest.pop(0)
        writer.write(first)
        for piece in rest:
            await asyncio.sleep(0.001)
            writer.write(piece)
        await asyncio.sleep(0.2 if hangs_up else 3600)
        return False

    return answer


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.paused = 0

    def text_came(self, text: str | bytes, /) -> None:
        self.messages.append(("text", text.encode() if isinstance(text, str) else text))

    def bytes_came(self, data: bytes, /) -> None:
        # A large frame comes in pieces; where one ends and the next begins does not matter to a body.
        before = self.messages.pop()[1] if self.messages and self.messages[-1][0] == "bytes" else b""
        self.messages.append(("bytes", before + data))

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None:
        self.paused -= 1


async def hear(server: ScriptedServer, count: int) -> tuple[list[tuple[str, bytes]], ConnectionClosed | None]:
    """The first messages of a server, and how the connection ended if it did before."""
    connection = await connect(
        f"ws://127.0.0.1:{server.port}",
        create_connection=SlotConnection,
        compression=None,
        proxy=None,
        max_size=LIMIT,
        close_timeout=0.2,
    )
    assert isinstance(connection, SlotConnection)
    connection.limit_bytes = LIMIT
    heard = Heard()
    task = asyncio.create_task(connection.receive(heard))
    try:
        await eventually(lambda: len(heard.messages) >= count or task.done())
        error = task.exception() if task.done() else None
        assert error is None or isinstance(error, ConnectionClosed)
        return heard.messages, error
    finally:
        task.cancel()
        await asyncio.wait([task])
        await connection.close()


MESSAGES = [("text", b'{"a":1}'), ("bytes", b"x" * 300), ("text", b""), ("bytes", b"y" * 66_000), ("text", b"end")]
BYTES = b"".join(frame(TEXT if kind == "text" else BINARY, data) for kind, data in MESSAGES)


@pytest.mark.parametrize("with_answer", [True, False])
async def test_frames_arrive_however_close_behind_the_handshake_they_come(with_answer):
    async with ScriptedServer(talking(BYTES, with_answer=with_answer)) as server:
        messages, _ = await hear(server, len(MESSAGES))
    assert messages == MESSAGES


@pytest.mark.parametrize("cut", [*range(1, 16), 250, 311, 312, 313, 320, 400, 40_000, len(BYTES) - 1])
async def test_frames_arrive_whole_wherever_they_are_cut(cut):
    async with ScriptedServer(talking(BYTES[:cut], BYTES[cut:], with_answer=cut % 2 == 0)) as server:
        messages, _ = await hear(server, len(MESSAGES))
    assert messages == MESSAGES


async def test_a_large_frame_is_handed_on_before_its_end_is_there():
    async with ScriptedServer(talking(frame(BINARY, b"y" * 66_000)[:40_000])) as server:
        messages, _ = await hear(server, 1)
    assert messages == [("bytes", b"y" * 39_990)]


async def test_a_goodbye_right_behind_a_large_frame_is_heard():
    whole = frame(BINARY, b"y" * 66_000)
    pieces = whole[:40_000], whole[40_000:] + frame(CLOSE, b"\x03\xe9")
    async with ScriptedServer(talking(*pieces, hangs_up=True)) as server:
        messages, error = await hear(server, 2)
    assert messages == [("bytes", b"y" * 66_000)]
    assert error is not None
    assert error.rcvd is not None
    assert error.rcvd.code == 1001


async def test_a_handshake_that_comes_byte_by_byte_is_understood():
    async def answer(head, writer):
        for byte in accepted(head) + frame(TEXT, b"hello"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        await asyncio.sleep(3600)
        return True

    async with ScriptedServer(answer) as server:
        messages, _ = await hear(server, 1)
    assert messages == [("text", b"hello")]


async def test_a_refused_handshake_is_explained():
    async def answer(_, writer):
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\n")
        await asyncio.sleep(0.01)
        writer.write(b"nope")
        return True

    async with ScriptedServer(answer) as server:
        with pytest.raises(InvalidStatus) as caught:
            await hear(server, 1)
    assert caught.value.response.body == b"nope"


async def test_fragments_and_what_follows_them_arrive_in_order():
    parts = [frame(TEXT, b"one"), frame(BINARY, b"tw", fin=False), frame(PING, b"p"), frame(CONT, b"o"), BYTES]
    async with ScriptedServer(talking(b"".join(parts))) as server:
        messages, _ = await hear(server, 2 + len(MESSAGES))
    assert messages == [("text", b"one"), ("bytes", b"two"), *MESSAGES]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (frame(BINARY, b"x" * (LIMIT + 1)), 1009),
        (frame(TEXT, b"mask" + b"hidden", mask=0x80), 1002),
        (b"\xc1\x00", 1002),
        (frame(CONT, b"x"), 1002),
    ],
    ids=["too large", "masked", "reserved bit", "stray continuation"],
)
async def test_what_breaks_the_protocol_ends_the_connection_as_the_library_does(bad, code):
    async with ScriptedServer(talking(frame(TEXT, b"good") + bad + frame(TEXT, b"late"), hangs_up=True)) as server:
        messages, error = await hear(server, 2)
    assert messages == [("text", b"good")]
    assert error is not None
    assert error.sent is not None
    assert error.sent.code == code


async def test_nothing_is_taken_after_the_other_side_said_goodbye():
    goodbye = frame(CLOSE, struct.pack("!H", 1001) + b"bye")
    async with ScriptedServer(talking(frame(TEXT, b"good") + goodbye + frame(TEXT, b"late"), hangs_up=True)) as server:
        messages, error = await hear(server, 2)
    assert messages == [("text", b"good")]
    assert error is not None
    assert error.rcvd is not None
    assert (error.rcvd.code, error.rcvd.reason) == (1001, "bye")


async def test_pings_are_answered_between_frames():
    async with RawCoordinator() as coordinator, Linked(coordinator.url):
        slot = await coordinator.slot()
        assert await (await slot.socket.ping(b"between")) >= 0
        assert (await slot.ask(b"{}")).end["ok"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
async def test_frames_of_every_size_leave_whole(size):
    async def act(job, body, line):
        line.head(200, "text/plain", None)
        line.data(b"z" * size)
        line.flush()

    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=Runner(act)):
        reply = await (await coordinator.slot()).ask(b"{}")
    assert reply.body == b"z" * size
    assert reply.head["status"] == 200


async def test_a_line_that_is_not_read_holds_its_job_up_until_it_is():
    runner = Runner()

    async def act(job, body, line):
        await asyncio.sleep(0)
        while not runner.running[-1].pauses:
            line.data(b"z" * 65_536)
            line.flush()
            await asyncio.sleep(0)

    runner.act = act
    async with RawCoordinator() as coordinator, Linked(coordinator.url, runner=runner):
        slot = await coordinator.slot()
        slot.socket.transport.pause_reading()
        await slot.job(b"{}")
        await eventually(lambda: runner.running and runner.running[0].task.done())
        assert runner.running[0].pauses == 1
        slot.socket.transport.resume_reading()
        assert (await slot.reply()).end["ok"]
