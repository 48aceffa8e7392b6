"""The short way for data frames does what the library does, for every way in which bytes can come."""

import asyncio
import contextlib
import itertools
import os
import random
import struct
import time

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from brain_coord.link.slot import READ_AHEAD_BYTES
from brain_coord.link.wire import NodeSocket

LIMIT = 70_000
HANDSHAKE = (
    b"GET /slot HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def frame(kind, data, *, fin=True, masked=True, rsv=0):
    size = len(data)
    head = bytes([(0x80 if fin else 0) | rsv | kind])
    mask = 0x80 if masked else 0
    if size < 126:
        head += bytes([mask | size])
    elif size < 65536:
        head += bytes([mask | 126]) + struct.pack("!H", size)
    else:
        head += bytes([mask | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + data
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(data))


class Echo:
    """Sends everything back and keeps what it received; `pause` holds the reading up."""

    def __init__(self):
        self.seen = []
        self.go = asyncio.Event()
        self.go.set()
        self.ended = asyncio.Event()

    async def has_seen(self, text):
        """Wait until it has answered `text`, or reads no more."""
        async with asyncio.timeout(10):
            while text not in self.seen and not self.ended.is_set():  # noqa: ASYNC110 — the server is told of nothing
                await asyncio.sleep(0.001)

    async def __call__(self, scope, receive, send):
        assert (await receive())["type"] == "websocket.connect"
        await self.go.wait()
        await send({"type": "websocket.accept"})
        try:
            while True:
                await self.go.wait()
                event = await receive()
                if event["type"] == "websocket.disconnect":
                    return
                self.seen.append(event.get("text", event.get("bytes")))
                await send({**event, "type": "websocket.send"})
        except Exception:  # a server tells a closed websocket with whatever it likes
            return
        finally:
            self.ended.set()


@contextlib.asynccontextmanager
async def served(kind):
    app = Echo()
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws=kind, ws_max_size=LIMIT, ws_ping_interval=None, ws_per_message_deflate=False)  # fmt: skip
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 — uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield app, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def talk(kind, pieces):
    """What the application saw and what came back after the handshake, for bytes sent in these pieces."""
    async with served(kind) as (app, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write(frame(TEXT, b"over"))  # what is still unread when the end comes may be answered or not
            await app.has_seen("over")
            writer.write(frame(CLOSE, struct.pack("!H", 1000)))
        back = None  # a server that hangs up on unread bytes resets the connection, and takes back what it said
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                back = await reader.read()
            await app.ended.wait()
        writer.close()
        return app.seen, back


async def same(pieces):
    (seen, back), (wanted, reply) = await talk(NodeSocket, pieces), await talk(WebSocketsSansIOProtocol, pieces)
    assert seen == wanted
    # A pong may overtake an echo that the application has yet to send; nothing else may differ.
    assert back is None or reply is None or sorted(back) == sorted(reply)


CONVERSATIONS = {
    "small frames": [frame(TEXT, b"{}"), frame(BINARY, b"\x00\x01")],
    "many in one piece": [b"".join(frame(BINARY, bytes([n]) * n) for n in range(130))],
    "every size of head": [frame(BINARY, b"x" * size) for size in (0, 1, 125, 126, 65535, 65536)],
    "a ping in between": [frame(TEXT, b"a") + frame(PING, b"hi") + frame(TEXT, b"b")],
    "an unasked pong": [frame(PONG, b"hi"), frame(TEXT, b"b")],
    "a message in fragments": [frame(TEXT, b"a", fin=False) + frame(CONT, b"b", fin=False), frame(CONT, b"c"), frame(TEXT, b"d")],
    "a ping within fragments": [frame(BINARY, b"a", fin=False) + frame(PING, b"?") + frame(CONT, b"c") + frame(TEXT, b"d")],
    "text that is not UTF-8": [frame(TEXT, b"ok"), frame(TEXT, b"\xff\xfe")],
    "larger than allowed": [frame(BINARY, b"ok"), frame(BINARY, b"x" * (LIMIT + 1))],
    "fragments larger than allowed": [frame(BINARY, b"x" * 60_000, fin=False), frame(CONT, b"x" * 60_000)],
    "no mask": [frame(TEXT, b"ok"), frame(TEXT, b"plain", masked=False)],
    "a reserved bit": [frame(TEXT, b"ok"), frame(TEXT, b"x", rsv=0x40)],
    "an unknown kind": [frame(TEXT, b"ok"), frame(3, b"x")],
    "a continuation of nothing": [frame(CONT, b"x")],
    "a close that is malformed": [frame(TEXT, b"ok"), frame(CLOSE, b"\x03")],
    "more than is looked at at once": [b"".join(frame(BINARY, bytes([n % 256]) * (n % 200)) for n in range(500))],
    "more than is looked at at once, of all kinds": [
        b"".join(frame(TEXT, b"t" * 90) for _ in range(120)) + frame(BINARY, b"a" * 30_000) + frame(TEXT, b"b", fin=False)
        + b"".join(frame(CONT, b"", fin=False) + frame(PING, b"p") for _ in range(1500)) + frame(CONT, b"c") + frame(TEXT, b"d")
    ],
    "data after the close": [frame(CLOSE, struct.pack("!H", 1001)), frame(TEXT, b"late")],
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_conversation_goes_as_with_the_library(name):
    await same(CONVERSATIONS[name])


@pytest.mark.parametrize("name", ["small frames", "a ping in between", "every size of head", "a message in fragments"])
async def test_it_does_not_matter_where_the_bytes_are_cut(name):
    data = b"".join(CONVERSATIONS[name])
    rng = random.Random(7)
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(20))})
    seen, back = await talk(NodeSocket, [data[a:b] for a, b in itertools.pairwise(cuts)])
    wanted, reply = await talk(WebSocketsSansIOProtocol, [data])
    assert (seen, sorted(back)) == (wanted, sorted(reply))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([TEXT, BINARY, PING]), st.binary(max_size=120).map(bytes.hex)), max_size=12),
    st.integers(1, 40),
)
def test_any_mix_of_frames_in_any_pieces(frames, size):
    data = b"".join(frame(kind, text.encode()[:120]) for kind, text in frames)
    pieces = [data[at : at + size] for at in range(0, len(data), size)][:60]
    asyncio.run(same([*pieces, data[60 * size :]]))


async def test_a_frame_begun_before_the_handshake_was_answered_is_read_too():
    async with served(NodeSocket) as (app, port):
        app.go.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        first = frame(TEXT, b"early")
        for piece in (HANDSHAKE, first[:4]):
            writer.write(piece)
            await asyncio.sleep(0.1)
        app.go.set()
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first[4:] + frame(TEXT, b"next"))
        assert await reader.readexactly(13) == b"\x81\x05early\x81\x04next"
        writer.write(frame(CLOSE, b""))
        await reader.read()
        await app.ended.wait()
        writer.close()
        assert app.seen == ["early", "next"]


@pytest.mark.parametrize(
    "nothing", [frame(CONT, b"", fin=False), frame(PING, b""), frame(TEXT, b"")], ids=["part", "ping", "text"]
)
async def test_a_read_full_of_frames_of_nothing_leaves_the_loop_to_others(nothing):
    longest, passes = 0.0, 0

    async def others():
        nonlocal longest, passes
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before, passes = max(longest, now - before), now, passes + 1

    async with served(NodeSocket) as (app, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE + frame(TEXT, b"begun", fin=nothing[0] != 0))
        await reader.readuntil(b"\r\n\r\n")
        passing, began = asyncio.create_task(others()), time.thread_time()
        writer.write(nothing * 30_000)
        await reader.readexactly(1) if nothing[0] else await asyncio.sleep(0.1)
        writer.write(frame(CONT, b"over") if nothing[0] == 0 else frame(TEXT, b"over"))
        await app.has_seen("begunover" if nothing[0] == 0 else "over")
        took = time.thread_time() - began
        passing.cancel()
        writer.transport.abort()
        await app.ended.wait()
    assert passes > 20
    assert longest < took / 4


async def test_a_client_that_pings_and_reads_nothing_is_cut():
    async with served(NodeSocket) as (app, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        block = frame(PING, b"p" * 125) * 500
        with pytest.raises(ConnectionError):
            for _ in range(4000):
                writer.write(block)
                await writer.drain()
        await app.ended.wait()
        writer.transport.abort()


async def test_a_reader_that_lags_behind_stops_the_sender():
    """Not after each message, as the library's server does, but after a bounded number of bytes."""
    async with served(NodeSocket) as (app, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        app.go.clear()
        block, sent = frame(BINARY, b"x" * 60_000), 0
        with pytest.raises(TimeoutError):
            while sent < 64 * 1024 * 1024:
                writer.write(block)
                sent += len(block)
                async with asyncio.timeout(2.0):
                    await writer.drain()
        assert sent > READ_AHEAD_BYTES
        app.go.set()
        got = 0
        while got < 10 * 60_000:
            got += len(await reader.read(65536))
        writer.transport.abort()
        await app.ended.wait()
