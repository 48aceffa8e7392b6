"""What HTTP lets a client do on one connection, shown on the true server."""

import asyncio
import gc
import signal
import weakref

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from brain_coord.gateway.guard import ConnectionBounds, GuardedConnection
from brain_coord.gateway.http import connection_of, send_json
from tests.support.configured import Configured
from tests.support.fake_openai import FakeOpenAi, chat
from tests.support.raw_client import RawClient, Reply

PATH = "/v1/chat/completions"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
UNKNOWN = {**CHAT, "model": "unknown"}


class Socket(asyncio.Transport):
    """A connection without a socket: it keeps what is written."""

    sent = b""
    closed = False
    paused = False

    def write(self, data) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        pass


def connected(app) -> tuple[GuardedConnection, Socket]:
    kind = GuardedConnection.bound_by(ConnectionBounds())
    config = Config(app, http=kind, interface="asgi3", lifespan="off", log_config=None)
    config.load()
    made = kind(config=config, server_state=ServerState(), app_state={}, _loop=asyncio.get_running_loop())
    made.connection_made(socket := Socket({}))
    return made, socket


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with Configured(tmp_path_factory.mktemp("coord") / "data", "") as running:
        yield running


async def test_requests_sent_ahead_are_answered_one_by_one_in_their_order(coordinator):
    async with FakeOpenAi("m", script=chat()) as server, RawClient(coordinator.url, coordinator.secret) as client:
        coordinator.reload("", server.toml("external", "pipelined", probe_s=0))
        body = client.body_of(CHAT)
        first = client.head_of("POST", PATH, CHAT) + body
        await client.send(first + client.head_of("GET", "/healthz") + client.head_of("GET", "/v1/nothing")[:20])
        await client.read_until(b"chat.completion")
        await client.send(client.head_of("GET", "/v1/nothing")[20:])
        await client.read_until(b"not_found")
    statuses = [int(part[:3]) for part in bytes(client.reply.raw).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 200, 404]


async def test_a_client_that_wants_to_be_asked_for_its_body_is_asked(coordinator):
    async with RawClient(coordinator.url, coordinator.secret) as client:
        await client.send(client.head_of("POST", PATH, UNKNOWN, expect="100-Continue"))
        await client.read_until(b"100 Continue\r\n\r\n")
        client.reply = Reply()
        await client.send(client.body_of(UNKNOWN))
        reply = await client.answer()
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")


async def test_a_body_may_come_byte_by_byte_and_in_chunks(coordinator):
    async with RawClient(coordinator.url, coordinator.secret) as client:
        for byte in client.head_of("POST", PATH, transfer_encoding="chunked"):
            await client.send(bytes([byte]))
        body = client.body_of(UNKNOWN)
        for at in range(0, len(body), 7):
            await client.send(b"%x\r\n%b\r\n" % (len(body[at : at + 7]), body[at : at + 7]))
        await client.send(b"0\r\n\r\n")
        reply = await client.answer()
        assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
        assert (await client.exchange("GET", "/healthz")).status == 200


async def test_a_client_of_http_1_0_gets_its_answer_and_the_end_of_the_connection(coordinator):
    async with RawClient(coordinator.url) as client:
        await client.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        reply = await client.answer()
        assert reply.status == 200
        assert reply.headers["connection"] == "close"
        assert await client.read_some() == b""


async def test_a_connection_and_its_requests_are_gone_with_the_client_before_any_garbage_is_collected():
    """On a connection without a socket, as nothing else tells when the last of it is gone."""

    async def app(scope, receive, send):
        if scope["path"] == "/waits":
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all of it"})

    gc.disable()
    try:
        for path in (b"/answers", b"/waits"):
            made, socket = connected(app)
            made.data_received(b"GET %b HTTP/1.1\r\nhost: test\r\n\r\n" % path)
            left = [weakref.ref(made), weakref.ref(made.cycle)]
            for _ in range(3):
                await asyncio.sleep(0)
            assert socket.sent.endswith(b"all of it\r\n0\r\n\r\n") is (path == b"/answers")
            made.connection_lost(None)
            del made, socket
            for _ in range(5):
                await asyncio.sleep(0)
            assert [each() for each in left] == [None, None]
    finally:
        gc.enable()


async def test_an_answer_has_one_head_whatever_fails_behind_it():
    async def app(scope, receive, send):
        connection = connection_of(scope)
        await send_json(connection, 200, b"{}", b"x-first: yes\r\n")
        await send_json(connection, 500, b"{}", b"x-second: yes\r\n")

    made, socket = connected(app)
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    for _ in range(3):
        await asyncio.sleep(0)
    assert socket.sent.startswith(b"HTTP/1.1 200 OK\r\n")
    assert socket.sent.endswith(b"x-first: yes\r\ncontent-length: 2\r\n\r\n{}")
    assert not socket.closed
    assert not made.tasks, "a server that stops waits for none that is over"


async def test_an_answer_behind_one_that_nobody_reads_ends_with_it():
    async def app(scope, receive, send):
        await send_json(connection_of(scope), 200, b"{}", b"")

    made, socket = connected(app)
    made.stall_s = 0.05
    made.data_received(b"GET /large HTTP/1.1\r\nhost: test\r\n\r\n")
    await asyncio.sleep(0)
    made.pause_writing()
    made.data_received(b"GET /next HTTP/1.1\r\nhost: test\r\n\r\n")
    async with asyncio.timeout(20):
        while not socket.closed:  # noqa: ASYNC110 — nothing tells of it
            await asyncio.sleep(0.01)
    assert made.stalled
    made.connection_lost(None)


async def test_a_request_that_the_server_no_longer_waits_for_is_told_that_it_stops():
    async def app(scope, receive, send):
        await asyncio.Event().wait()

    made, socket = connected(app)
    made.data_received(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    await asyncio.sleep(0)
    made.cycle.task.cancel()
    await asyncio.sleep(0)
    assert socket.sent.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"draining"' in socket.sent
    assert socket.closed


async def test_a_body_that_is_whole_only_when_the_coordinator_stops_begins_nothing(tmp_path):
    async with FakeOpenAi("m", script=chat()) as server:
        with Configured(tmp_path / "data", server.toml("external", "late", probe_s=0)) as stopping:
            async with RawClient(stopping.url, stopping.secret) as client, RawClient(stopping.url) as idle:
                await client.send(client.head_of("POST", PATH, CHAT) + client.body_of(CHAT)[:5])
                await idle.exchange("GET", "/healthz")
                stopping.program.send(signal.SIGTERM)
                assert await idle.read_some() == b""
                await client.send(client.body_of(CHAT)[5:])
                reply = await client.answer()
    assert (reply.status, reply.json["error"]["code"], server.calls) == (503, "draining", 0)
