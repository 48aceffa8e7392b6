"""The same promises with the real agent between the coordinator and an engine that speaks HTTP."""

import asyncio
import gzip
import json
from time import monotonic

import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.engine_streams import REQUESTS, STREAMS, WHOLE
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine, stream
from tests.support.node_process import NodeProcess
from tests.support.served import Served
from tests.support.stalls import stalls

MODEL = "qwen/qwen3-0.6b"
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("agent") / "coord") as running:
        yield running


def tokens(number: int) -> list[bytes]:
    """A stream of so many words as a benchmark wants to see."""
    said = [
        {"choices": [{"index": 0, "delta": {"content": f"word{n} "}, "finish_reason": None}]} for n in range(number)
    ]
    end = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}]
    counts = [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": number, "total_tokens": number + 3}}]
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in (*said, *end, *counts)] + [
        b"data: [DONE]\n\n"
    ]


async def benchmark(request: web.Request, body: bytes) -> web.StreamResponse:
    return await stream(request, tokens(json.loads(body)["max_tokens"]), pause_s=0.012)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(served, tmp_path_factory):
    """An engine behind a joined agent; its script is free to change."""
    async with FakeEngine(benchmark) as engine:
        options = ("--engine-url", engine.url, "--serve", f"{MODEL}=served-name")
        async with NodeProcess(served.url, tmp_path_factory.mktemp("agent") / "node", *options, engine="attach"):
            wanted = {"basis": "coordinator-timed", "state": "ONLINE", "active": 0}
            await asyncio.to_thread(served.wait_for_node, None, 60.0, **wanted)
            engine.requests.clear()
            yield engine


def whole(body: bytes, **headers: str):
    async def script(request: web.Request, _: bytes) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": "application/json", **headers})

    return script


async def test_every_form_passes_through_the_agent_and_only_the_name_changes(served, engine):
    for path, events in STREAMS.items():
        named = [event.replace(b'"known"', b'"served-name"') for event in events]

        async def script(request: web.Request, _: bytes, named=named) -> web.StreamResponse:
            return await stream(request, named)

        engine.script = script
        body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, **REQUESTS[path]}
        reply = await served.ask(path, body)
        passed = reply.body[: reply.body.rindex(b',"brain":')]
        assert b"".join(events).replace(b'"known"', json.dumps(MODEL).encode()).startswith(passed)
        assert json.loads(engine.requests[-1].body) == {**body, "model": "served-name"}
        assert engine.requests[-1].path == path
    for path, answer in WHOLE.items():
        engine.script = whole(answer.replace(b'"known"', b'"served-name"'))
        reply = await served.ask(path, {"model": MODEL, **REQUESTS[path]})
        passed = reply.body[: reply.body.rindex(b',"brain":')]
        assert passed + b"}" == answer.replace(b'"known"', json.dumps(MODEL).encode())


async def test_an_answer_compressed_without_being_asked_is_readable(served, engine):
    engine.script = whole(gzip.compress(WHOLE[CHAT]), **{"Content-Encoding": "gzip"})
    reply = await served.ask(CHAT, {"model": MODEL, "messages": MESSAGES}, accept_encoding="gzip")
    assert reply.status == 200
    assert "content-encoding" not in reply.headers
    assert reply.json["choices"][0]["message"]["content"] == "Every answer of"
    assert "Accept-Encoding" not in engine.requests[-1].headers


@pytest.mark.case("D-07")
async def test_twelve_megabytes_arrive_whole_at_the_engine(served, engine):
    engine.script = whole(WHOLE[CHAT])
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 12_000_000}]}
    assert (await served.ask(CHAT, body)).status == 200
    assert json.loads(engine.requests[-1].body)["messages"] == body["messages"]


@pytest.mark.case("C-08")
@pytest.mark.parametrize(
    ("streamed", "words"),
    [(True, 0), (True, 2), (False, 0)],
    ids=["before the first byte", "after two chunks", "in a call that is not streamed"],
)
async def test_the_engines_connection_is_closed_when_the_client_leaves(served, engine, streamed, words):
    began = asyncio.Event()

    async def script(request: web.Request, _: bytes) -> web.StreamResponse:
        if not words:
            began.set()
            await asyncio.sleep(60)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in tokens(words)[:words]:
            await response.write(event)
        began.set()
        await asyncio.sleep(60)
        return response

    engine.script, engine.hung_up = script, 0
    async with served.client() as client, stalls() as machine:
        await client.post(CHAT, {"model": MODEL, "messages": MESSAGES, "stream": streamed})
        async with asyncio.timeout(30):
            await began.wait()
        if words:
            await client.read_until(b"word1")
        left = monotonic()
        client.reset()
        await eventually(lambda: engine.hung_up)
        took_s = monotonic() - left
    assert took_s < 2.0 + 10 * machine.worst_s  # three processes pass it on
    assert engine.running == 0
