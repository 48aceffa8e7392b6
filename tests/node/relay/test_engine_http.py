"""Answers of an engine as bytes: however they are cut and framed, the slot gets the same."""

import asyncio
import gzip

import pytest

from brain_node.contract.messages import Job
from brain_node.relay import engine_http, engine_pool
from brain_node.relay.deadlines import Deadlines
from brain_node.relay.engine_pool import EnginePool
from brain_node.relay.job import RelayedJob, request_head
from brain_node.relay.lease import Endpoint
from brain_node.relay.origin import origin_of
from tests.support.eventually import eventually
from tests.support.lines import RecordedLine
from tests.support.scripted_server import ScriptedServer, saying

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]
CHUNKED = STREAM + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in EVENTS) + b"0\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Lease:
    def __init__(self, url: str) -> None:
        self.endpoint = Endpoint(url, None, "m")
        self.outcome: str | None = None

    def progress(self) -> None:
        pass

    def finished(self, outcome: str) -> None:
        assert self.outcome is None
        self.outcome = outcome


@pytest.fixture
def pool():
    pool = EnginePool()
    yield pool
    pool.close()


def begin(pool: EnginePool, url: str) -> tuple[RelayedJob, RecordedLine, Lease]:
    job = Job(id="j", model="m", path="/v1/completions", deadline_s=30.0, body_bytes=2)
    line, lease = RecordedLine(), Lease(url)
    running = RelayedJob(job, (b"{}",), lease, line, pool, Deadlines(), 256 * 1024)
    running.start()
    return running, line, lease


async def ask(pool: EnginePool, server: ScriptedServer) -> RecordedLine:
    _, line, _ = begin(pool, server.url)
    return await line.ended()


async def test_what_one_read_brings_leaves_in_one_piece(pool):
    async with ScriptedServer(saying(CHUNKED)) as server:
        line = await ask(pool, server)
    assert line.kinds == ["accepted", "head", "bytes", "end"]
    assert line.body == b"".join(EVENTS)


async def test_a_chunked_answer_is_the_same_wherever_it_is_cut(pool):
    cuts = iter(range(1, len(CHUNKED)))

    async def answer(_, writer):
        cut = next(cuts)
        writer.write(CHUNKED[:cut])
        await asyncio.sleep(0.001)
        writer.write(CHUNKED[cut:])
        return True

    async with ScriptedServer(answer) as server:
        for _ in range(1, len(CHUNKED)):
            line = await ask(pool, server)
            assert line.body == b"".join(EVENTS)
            assert line.ok
        assert server.connections == 1


async def test_an_answer_without_a_length_ends_with_its_connection(pool):
    bare = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    async with ScriptedServer(saying(bare, b"a", b"b", stays=False)) as server:
        line = await ask(pool, server)
    assert line.ok
    assert line.body == b"ab"


async def test_an_answer_with_a_length_that_ends_early_is_lost(pool):
    async with ScriptedServer(saying(WHOLE[:-1], stays=False)) as server:
        line = await ask(pool, server)
    assert line.cause == "engine_lost"


async def test_interim_answers_say_nothing(pool):
    early = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with ScriptedServer(saying(b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE)) as server:
        line = await ask(pool, server)
        assert (line.answer.status, line.answer.retry_after, line.body) == (200, None, b"{}")
        server.answer = saying(early.replace(b"Transfer-Encoding: chunked\r\n", b"") + WHOLE)
        line = await ask(pool, server)
        assert (line.answer.status, line.answer.retry_after, line.body) == (200, None, b"{}")


@pytest.mark.parametrize(
    "bytes_",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        STREAM + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * engine_http.HEAD_BYTES + b"x" * 1000,
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 000 none\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 999 none\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=[
        *("no HTTP", "no chunk", "unasked compression", "no gzip", "an endless head", "another protocol"),
        *("a status below all", "a status above all"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_a_lost_engine(pool, bytes_, caplog):
    async with ScriptedServer(saying(bytes_)) as server:
        line = await ask(pool, server)
        assert (line.cause, line.answer if line.pieces else None, line.body) == ("engine_lost", None, b"")
        await eventually(lambda: server.open == 0)
    assert "Fatal error" not in caplog.text


async def test_what_stood_before_the_fault_is_passed_on(pool):
    async with ScriptedServer(saying(STREAM + b"3\r\nabc\r\nnonsense\r\n")) as server:
        line = await ask(pool, server)
    assert (line.body, line.cause) == (b"abc", "engine_lost")


async def test_gzip_that_nobody_asked_for_is_taken_off(pool):
    packed = gzip.compress(b"data: plain\n\n" * 500)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with ScriptedServer(saying(head, packed[:20], packed[20:])) as server:
        line = await ask(pool, server)
    assert line.body == b"data: plain\n\n" * 500


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
@pytest.mark.parametrize(
    "packed",
    [gzip.compress(b"x" * 9999)[:-9], gzip.compress(b"one") + gzip.compress(b"two")],
    ids=["cut", "more behind"],
)
async def test_a_packed_answer_that_is_cut_or_has_more_behind_it_is_not_taken_for_whole(pool, framing, packed):
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
    if framing == "length":
        pieces = [head + b"Content-Length: %d\r\n\r\n" % len(packed), packed]
    elif framing == "chunks":
        pieces = [head + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n" % (len(packed), packed), b"0\r\n\r\n"]
    else:
        pieces = [head + b"\r\n", packed]
    async with ScriptedServer(saying(*pieces, stays=False)) as server:
        line = await ask(pool, server)
    assert line.cause == "engine_lost"


async def test_an_empty_answer_has_nothing_packed_in_it(pool):
    empty = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"
    async with ScriptedServer(saying(empty)) as server:
        assert (await ask(pool, server)).ok


@pytest.mark.parametrize(
    ("bytes_", "connections"),
    [
        (WHOLE, 1),
        (WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 2),
        (WHOLE + WHOLE, 2),
        (WHOLE + b"\x00rubbish", 2),
    ],
    ids=["kept", "closed by the engine", "more than was asked for", "rubbish behind it"],
)
async def test_a_connection_is_used_again_when_its_answer_was_clean(pool, bytes_, connections):
    async with ScriptedServer(saying(bytes_)) as server:
        for _ in range(2):
            assert (await ask(pool, server)).body == b"{}"
        assert server.connections == connections


async def test_an_idle_connection_that_speaks_is_not_used(pool):
    async def answer(_, writer):
        writer.write(WHOLE)
        await asyncio.sleep(0.02)
        writer.write(WHOLE)
        return True

    async with ScriptedServer(answer) as server:
        await ask(pool, server)
        await eventually(lambda: server.open == 0)
        assert (await ask(pool, server)).ok


async def test_a_connection_is_not_used_after_the_engine_may_have_closed_it():
    now = [0.0]
    pool = EnginePool(lambda: now[0])
    async with ScriptedServer(saying(WHOLE)) as server:
        for at, connections in ((0.0, 1), (2.9, 1), (5.8, 1), (8.9, 2)):
            now[0] = at
            assert (await ask(pool, server)).ok
            assert server.connections == connections
        pool.close()
        await eventually(lambda: server.open == 0)


async def test_idle_connections_are_closed_in_time(monkeypatch):
    monkeypatch.setattr(engine_pool, "KEEPALIVE_S", 0.02)
    pool = EnginePool()
    async with ScriptedServer(saying(WHOLE)) as server:
        await ask(pool, server)
        await eventually(lambda: server.open == 0)


async def test_a_full_line_holds_the_engine_up_and_the_rest_comes_when_it_has_room(pool):
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    written = 0

    async def answer(_, writer):
        nonlocal written
        writer.write(STREAM)
        for _ in range(400):
            writer.write(chunk)
            await writer.drain()
            written += 0x10000
        writer.write(b"0\r\n\r\n")
        return True

    async with ScriptedServer(answer) as server:
        running, line, _ = begin(pool, server.url)
        running.pause()
        before = -1
        while before != written:  # until the buffers of both sockets are full
            before = written
            await asyncio.sleep(0.1)
        assert written < 400 * 0x10000
        assert len(line.body) < 2 * 256 * 1024
        running.resume()
        await line.ended()
    assert len(line.body) == 400 * 0x10000


@pytest.mark.case("C-08")
async def test_a_job_cancelled_while_it_dials_leaves_no_connection(pool):
    async with ScriptedServer(saying(WHOLE)) as server:
        running, line, lease = begin(pool, server.url)
        running.cancel()
        assert (line.kinds, line.cause, lease.outcome) == (["accepted", "end"], "cancelled", "cancelled")
        await eventually(lambda: server.open == 0)
        assert server.heads == []


@pytest.mark.parametrize(
    ("url", "line", "authority"),
    [
        ("http://127.0.0.1:8000", b"POST /v1/completions HTTP/1.1", b"127.0.0.1:8000"),
        ("http://engine.example/some/path", b"POST /some/path/v1/completions HTTP/1.1", b"engine.example"),
        ("https://engine.example", b"POST /v1/completions HTTP/1.1", b"engine.example"),
        ("http://[::1]:8000", b"POST /v1/completions HTTP/1.1", b"[::1]:8000"),
    ],
)
def test_a_request_names_its_engine(url, line, authority):
    head = request_head(Endpoint(url, "KEY", "m"), origin_of(url), "/v1/completions", 7).split(b"\r\n")
    assert head[0] == line
    assert b"Host: " + authority in head
    assert b"Authorization: Bearer KEY" in head
    assert b"Content-Length: 7" in head
