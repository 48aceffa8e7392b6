"""The probe, against raw servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from brain_node.engine.probe import CanaryResult, EngineProbe

MODELS = b'{"data":[{"id":"acme/model"}]}'


@contextlib.asynccontextmanager
async def server(answers: dict[bytes, tuple[int, bytes]], host: str = "127.0.0.1") -> AsyncIterator[int]:
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            status, body = answers.get(head.split(b" ")[1], (404, b"{}"))
            if status:
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
                await writer.drain()
            else:
                await reader.read()  # silent until the client leaves
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listener = await asyncio.start_server(serve, host, 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
    if handlers:
        await asyncio.wait(handlers)


@contextlib.asynccontextmanager
async def probe(port: int, timeout_s: float = 5.0, host: str = "127.0.0.1") -> AsyncIterator[EngineProbe]:
    made = EngineProbe(port, "key", "acme/model", timeout_s, host)
    try:
        yield made
    finally:
        await made.close()


async def test_a_starting_engine_is_asked_for_health_and_its_models():
    async with server({b"/health": (200, b""), b"/v1/models": (200, MODELS)}) as port, probe(port) as asked:
        result = await asked.look(starting=True)
    assert (result.healthy, result.serves, result.marks) == (True, True, None)


@pytest.mark.case("B-06")
async def test_another_model_is_named():
    other = b'{"data":[{"id":"someone/else"}]}'
    async with server({b"/health": (200, b""), b"/v1/models": (200, other)}) as port, probe(port) as asked:
        result = await asked.look(starting=True)
    assert result.serves is False
    assert result.other_models == ("someone/else",)


@pytest.mark.case("B-06")
async def test_the_address_that_was_given_is_the_one_that_is_asked():
    answers = {b"/health": (200, b""), b"/v1/models": (200, MODELS)}
    async with server(answers, "127.0.0.9") as port:
        async with probe(port) as elsewhere:
            assert not (await elsewhere.look(starting=True)).healthy
        async with probe(port, host="127.0.0.9") as there:
            assert (await there.look(starting=True)).serves


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data":1}', b'{"data":[{}]}', b"\xff", b'{"data":null}'])
async def test_a_list_that_is_none_says_nothing(body):
    async with server({b"/health": (200, b""), b"/v1/models": (200, body)}) as port, probe(port) as asked:
        assert (await asked.look(starting=True)).serves is None


async def test_progress_is_read_from_the_counters():
    text = b"""# HELP vllm:generation_tokens_total x
vllm:generation_tokens_total{engine="0",model_name="a"} 12.0
vllm:generation_tokens_total{engine="1",model_name="a"} 30.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:generation_tokens_created{engine="0"} 1.7e9
vllm:num_requests_running{engine="0"} nonsense
"""
    async with server({b"/health": (200, b""), b"/metrics": (200, text)}) as port, probe(port) as asked:
        first = await asked.look(starting=False)
    assert first.marks is not None
    assert first.marks[0] == 42.0
    assert 0.25 in first.marks
    assert 1.7e9 not in first.marks


@pytest.mark.case("F-01")
async def test_no_proxy_stands_between_the_node_and_its_engine(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with server({b"/health": (200, b"")}) as port, probe(port) as asked:
        assert (await asked.look(starting=False)).healthy


@pytest.mark.parametrize(
    ("status", "body", "result"),
    [
        (200, b'{"choices":[{"text":"x"}]}', CanaryResult.ANSWERED),
        (200, b'{"choices":[]}', CanaryResult.SILENT),
        (200, b"not json", CanaryResult.SILENT),
        (404, b'{"detail":"Not Found"}', CanaryResult.REFUSED),
        (400, b"{}", CanaryResult.REFUSED),
        (500, b'{"error":"EngineDeadError"}', CanaryResult.SILENT),
        (503, b"", CanaryResult.SILENT),
        (0, b"", CanaryResult.SILENT),
    ],
)
async def test_what_a_canary_comes_back_with(status, body, result):
    async with server({b"/v1/completions": (status, body)}) as port, probe(port) as asked:
        assert await asked.canary(0.3 if status == 0 else 5.0) is result


async def test_a_closed_port_is_silence():
    async with server({}) as port:
        pass
    async with probe(port) as asked:
        assert await asked.canary(5.0) is CanaryResult.SILENT
        assert not (await asked.look(starting=True)).healthy


async def test_a_stranger_that_never_stops_talking_is_cut_off():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 100_000)
                await writer.drain()
        writer.close()
        over.set()

    over = asyncio.Event()
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener, probe(listener.sockets[0].getsockname()[1], timeout_s=20) as asked:
        assert not (await asked.look(starting=True)).healthy
        await over.wait()
