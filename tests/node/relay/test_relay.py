"""One job between a slot and a real HTTP engine: bytes, statuses, cancellation, and what broke on the way."""

import asyncio
import contextlib
import threading

import orjson
import pytest
from aiohttp import web

from brain_node.contract.messages import Job
from brain_node.model_name import SMALL_BYTES, rename_request
from brain_node.relay.lease import Endpoint
from brain_node.relay.relay import Relay
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, stream
from tests.support.lines import RecordedLine

BODY = b'{"model": "a/model", "n": 1}'


class Lease:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.outcomes: list[str] = []
        self.chunks = 0

    def progress(self) -> None:
        self.chunks += 1

    def finished(self, outcome: str) -> None:
        self.outcomes.append(outcome)


class Engines:
    """Gives every job a lease on one engine, or a refusal."""

    def __init__(
        self, url: str, served_name: str = "a/model", api_key: str | None = None, *, several: bool = False
    ) -> None:
        self.endpoint = Endpoint(url, api_key, served_name, several)
        self.refusal: str | None = None
        self.leases: list[Lease] = []

    def claim(self, job: Job) -> Lease | str:
        if self.refusal:
            return self.refusal
        self.leases.append(Lease(self.endpoint))
        return self.leases[-1]


def job(**changes) -> Job:
    fields = {
        "id": "j1",
        "model": "a/model",
        "path": "/v1/chat/completions",
        "deadline_s": 30.0,
        "body_bytes": len(BODY),
    }
    return Job(**(fields | changes))


@contextlib.contextmanager
def relay_to(engines: Engines):
    relay = Relay(engines)
    try:
        yield relay
    finally:
        relay.close()


async def run_once(
    engine: FakeEngine, body: bytes = BODY, engines: Engines | None = None, **changes
) -> tuple[RecordedLine, Engines]:
    engines, line = engines or Engines(engine.url), RecordedLine()
    with relay_to(engines) as relay:
        relay.start(job(**changes), (body,), line)
        await line.ended()
    return line, engines


async def test_a_streamed_answer_passes_byte_for_byte():
    pieces = [b": ping\r\n\r\n", 'data: {"x": "漢字 🌍"}\n'.encode(), b"\n", b"data: [DONE]\n\n"]

    async def script(request, _):
        return await stream(request, pieces, pause_s=0.01)

    async with FakeEngine(script) as engine:
        line, engines = await run_once(engine)
    assert line.kinds[:2] == ["accepted", "head"]
    assert (line.answer.status, line.answer.content_type) == (200, "text/event-stream")
    assert line.body == b"".join(pieces)
    assert line.ok
    assert engines.leases[0].outcomes == ["ok"]
    assert engines.leases[0].chunks >= 2


@pytest.mark.case("C-05")
async def test_characters_cut_between_frames_stay_whole_in_their_bytes():
    text = 'data: {"delta": "naive-ï 漢字 🌍"}\n\n'.encode()

    async def script(request, _):
        return await stream(request, [bytes([b]) for b in text], pause_s=0.001)

    async with FakeEngine(script) as engine:
        line, _ = await run_once(engine)
    assert line.body == text


async def test_the_request_reaches_the_engine_as_it_came():
    body = b'{ "model":"a/model",\n"temperature": 1e-7, "x": [1,  2], "big": 123456789012345678901234567890 }'
    async with FakeEngine() as engine:
        await run_once(engine, body, path="/v1/completions")
    seen = engine.requests[0]
    assert (seen.path, seen.body) == ("/v1/completions", body)
    assert seen.headers["Content-Type"] == "application/json"
    assert "Accept-Encoding" not in seen.headers
    assert "Authorization" not in seen.headers


async def test_the_engines_key_is_sent_to_the_engine():
    async with FakeEngine() as engine:
        await run_once(engine, engines=Engines(engine.url, api_key="ENGINE-TESTSECRET"))
    assert engine.requests[0].headers["Authorization"] == "Bearer ENGINE-TESTSECRET"


@pytest.mark.case("D-07")
@pytest.mark.parametrize("megabytes", [3, 12, 32])
async def test_a_large_body_reaches_the_engine_whole(megabytes):
    frames = [bytes([n % 256]) * (256 * 1024) for n in range(4 * megabytes)]
    async with FakeEngine() as engine:
        engines, line = Engines(engine.url), RecordedLine()
        with relay_to(engines) as relay:
            relay.start(job(), tuple(frames), line)
            await line.ended()
    assert line.ok
    assert engine.requests[0].body == b"".join(frames)
    assert engine.requests[0].headers["Content-Length"] == str(megabytes * 1024 * 1024)


@pytest.mark.case("D-07")
async def test_a_large_answer_is_cut_into_frames_that_fit():
    answer = bytes(range(256)) * 8192

    async def script(request, _):
        return web.Response(body=answer, content_type="application/json")

    async with FakeEngine(script) as engine:
        line, _ = await run_once(engine)
    assert line.body == answer
    assert line.ok
    assert max(map(len, line.pieces)) <= 256 * 1024


@pytest.mark.case("C-10")
@pytest.mark.parametrize("status", [400, 404, 413, 429, 500, 503])
async def test_the_engines_status_and_retry_after_are_passed_on(status):
    async def script(request, _):
        return web.json_response({"error": "no"}, status=status, headers={"Retry-After": "17"})

    async with FakeEngine(script) as engine:
        line, engines = await run_once(engine)
    assert (line.answer.status, line.answer.retry_after) == (status, "17")
    assert orjson.loads(line.body) == {"error": "no"}
    assert line.ok
    assert engines.leases[0].outcomes == ["engine_error" if status >= 500 else "ok"]


@pytest.mark.parametrize("cause", ["no_engine", "draining", "busy"])
async def test_a_job_that_cannot_be_taken_is_refused_and_never_queued(cause):
    engines, line = Engines("http://127.0.0.1:9"), RecordedLine()
    engines.refusal = cause
    with relay_to(engines) as relay:
        assert relay.start(job(), (BODY,), line) is None
    assert line.cause == cause
    assert line.kinds == ["end"]


async def test_an_engine_that_refuses_connections_never_had_the_job():
    async with FakeEngine() as engine:
        url = engine.url
    engines, line = Engines(url), RecordedLine()
    with relay_to(engines) as relay:
        relay.start(job(), (BODY,), line)
        await line.ended()
    assert line.cause == "engine_refused"
    assert engines.leases[0].outcomes == ["engine_refused"]


@pytest.mark.case("C-07")
@pytest.mark.parametrize("pieces", [0, 3])
async def test_an_engine_that_breaks_off_is_lost(pieces):
    async def script(request, _):
        response = web.StreamResponse()
        if pieces:
            await response.prepare(request)
            for _ in range(pieces):
                await response.write(b"data: x\n\n")
                await asyncio.sleep(0.01)
        request.transport.abort()
        await asyncio.sleep(0)
        return response

    async with FakeEngine(script) as engine:
        line, engines = await run_once(engine)
    assert line.cause == "engine_lost"
    assert line.body == b"data: x\n\n" * pieces
    assert engines.leases[0].outcomes == ["engine_lost"]
    assert len(engine.requests) == 1


@pytest.mark.case("C-08")
@pytest.mark.parametrize("when", ["before the head", "during the stream", "not streamed"])
async def test_a_cancelled_job_hangs_up_on_the_engine(when):
    async def script(request, _):
        if when == "during the stream":
            return await stream(request, [b"data: x\n\n"] * 10_000, pause_s=0.01)
        await asyncio.sleep(3600)
        return web.Response()

    async with FakeEngine(script) as engine:
        engines, line = Engines(engine.url), RecordedLine()
        with relay_to(engines) as relay:
            running = relay.start(job(), (BODY,), line)
            await eventually(lambda: len(line.kinds) >= (4 if when == "during the stream" else 1) and engine.running)
            running.cancel()
            assert line.cause == "cancelled"
            assert engines.leases[0].outcomes == ["cancelled"]
            await eventually(lambda: engine.hung_up == 1 and engine.running == 0)


async def test_an_engine_silent_past_the_deadline_is_hung_up_on():
    async def script(request, _):
        await asyncio.sleep(3600)
        return web.Response()

    async with FakeEngine(script) as engine:
        line, engines = await run_once(engine, deadline_s=0.05)
        await eventually(lambda: engine.hung_up == 1)
    assert line.cause == "timeout"
    assert engines.leases[0].outcomes == ["timeout"]


async def idle_race(answer_second: bool) -> tuple[RecordedLine, list[str], list[bytes]]:
    """An engine that closes the kept connection when the second request arrives on it, as an idle timeout would."""
    log: list[str] = []
    bodies: list[bytes] = []
    connections = 0
    handlers: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        handlers.add(asyncio.current_task())
        number, requests = connections, 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
                )
                requests += 1
                log.append(f"connection {number} request {requests}")
                if requests == 2 or (number > 1 and not answer_second):
                    break
                bodies.append(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        writer.transport.abort()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    engines = Engines(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    with relay_to(engines) as relay:
        for _ in range(2):
            line = RecordedLine()
            relay.start(job(), (BODY,), line)
            await line.ended()
    server.close()
    await asyncio.wait(handlers)
    return line, log, bodies


async def test_the_idle_pool_race_is_retried_once_on_a_new_connection():
    line, log, bodies = await idle_race(answer_second=True)
    assert line.ok
    assert line.body == b"{}"
    assert log == ["connection 1 request 1", "connection 1 request 2", "connection 2 request 1"]
    assert bodies == [BODY, BODY]


async def test_the_retry_is_never_repeated():
    line, log, _ = await idle_race(answer_second=False)
    assert line.cause == "engine_lost"
    assert len(log) == 3


async def test_a_proxy_variable_does_not_apply_to_engines(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with FakeEngine() as engine:
        line, _ = await run_once(engine)
    assert line.ok


async def test_an_attached_engines_own_name_is_seen_by_the_engine_only():
    async def script(request, body):
        name = orjson.loads(body)["model"]
        event = b'data: {"model":"%s","x":"\\"model\\":\\"%s\\""}\n\n' % (name.encode(), name.encode())
        return await stream(request, [event[:12], event[12:], b"data: [DONE]\n\n"], pause_s=0.01)

    async with FakeEngine(script) as engine:
        line, _ = await run_once(engine, engines=Engines(engine.url, served_name="local-7b"))
    assert line.ok
    assert orjson.loads(engine.requests[0].body)["model"] == "local-7b"
    assert line.body == b'data: {"model":"a/model","x":"\\"model\\":\\"local-7b\\""}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("own_name", ["a/model", "local-7b"])
@pytest.mark.parametrize("sent", [{"model": "private"}, {"model": "a/model", "Model": "private"}])
async def test_a_server_with_several_models_is_asked_for_the_lent_one_alone(own_name, sent):
    async with FakeEngine() as engine:
        engines = Engines(engine.url, served_name=own_name, several=True)
        await run_once(engine, orjson.dumps({**sent, "prompt": "x"}), engines)
    assert orjson.loads(engine.requests[0].body) == {**dict.fromkeys(sent, own_name), "prompt": "x"}


@pytest.mark.parametrize("padding", [b"", b" " * SMALL_BYTES])
async def test_a_request_that_leaves_the_model_to_the_server_is_no_job(padding):
    async with FakeEngine() as engine:
        line, engines = await run_once(engine, b'{"prompt":"x"' + padding + b"}", Engines(engine.url, several=True))
    assert line.cause == "bad_job"
    assert engines.leases[0].outcomes == ["cancelled"]
    assert engine.requests == []


async def test_naming_the_model_in_a_large_request_makes_no_other_job_wait(monkeypatch):
    others_are_over = threading.Event()

    def slowly(body: bytes, name: str) -> bytes | None:
        assert others_are_over.wait(10), "it held the loop"
        return rename_request(body, name)

    monkeypatch.setattr("brain_node.relay.job.rename_request", slowly)
    async with FakeEngine() as engine:
        lent = Engines(engine.url, several=True)
        with relay_to(lent) as relay:
            large, other = RecordedLine(), RecordedLine()
            relay.start(job(), (b'{"n": [', b"1," * SMALL_BYTES, b'1], "model": "private"}'), large)
            lent.endpoint = Endpoint(engine.url, None, "a/model")
            relay.start(job(id="j2"), (BODY,), other)
            await other.ended()
            others_are_over.set()
            await large.ended()
    assert (large.ok, other.ok) == (True, True)
    assert [orjson.loads(seen.body)["model"] for seen in engine.requests] == ["a/model", "a/model"]


async def test_a_job_cancelled_while_its_model_is_named_asks_no_engine(monkeypatch):
    named, go = threading.Event(), threading.Event()

    def slowly(body: bytes, _: str) -> bytes:
        go.wait(10)
        named.set()
        return body

    monkeypatch.setattr("brain_node.relay.job.rename_request", slowly)
    async with FakeEngine() as engine:
        engines, line = Engines(engine.url, several=True), RecordedLine()
        with relay_to(engines) as relay:
            running = relay.start(job(), (b"[" * (SMALL_BYTES + 1),), line)
            await asyncio.sleep(0)
            running.cancel()
            go.set()
            await asyncio.to_thread(named.wait, 10)
            await asyncio.sleep(0)
    assert line.cause == "cancelled"
    assert engines.leases[0].outcomes == ["cancelled"]
    assert engine.requests == []


async def test_an_engine_that_compresses_unasked_is_decoded():
    async def script(request, _):
        response = web.Response(body=b"data: plain\n\n" * 100, content_type="text/event-stream")
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with FakeEngine(script) as engine:
        line, _ = await run_once(engine)
    assert line.ok
    assert line.body == b"data: plain\n\n" * 100


@pytest.mark.parametrize("path", ["/v1/load_lora_adapter", "/v1/models", "/v1/chat"])
async def test_a_coordinator_reaches_nothing_of_an_engine_but_inference(path):
    async with FakeEngine() as engine:
        line, engines = await run_once(engine, path=path)
    assert line.cause == "bad_job"
    assert line.kinds == ["end"]
    assert engine.requests == []
    assert engines.leases == []
