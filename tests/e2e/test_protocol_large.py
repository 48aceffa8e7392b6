"""Large bodies and answers: whole, or refused to that client alone, while everybody else keeps pace."""

import asyncio
import base64
import hashlib
import json
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawJob, RawNode, answer, chunk, usage
from tests.support.served import MODEL, Served
from tests.support.stalls import stalls

CHAT = "/v1/chat/completions"
TICK_S = 0.02
PACE_S = 2.0
"""A gap that no stream may show, beyond what the machine itself holds up."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("large") / "coord", heartbeat_s=1.0, ping_s=0.5) as running:
        yield running


def image_body(megabytes: int, **more) -> bytes:
    picture = base64.b64encode(bytes(range(256)) * (megabytes * 1_000_000 * 3 // 4 // 256)).decode()
    content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}]
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": content}], **more}).encode()


async def ticks(job: RawJob) -> None:
    """A stream that never stops; other jobs are answered."""
    if not job.request.get("ticking"):
        await answer(job)
        return
    await job.accept()
    await job.head()
    while not job.cancelled.is_set():
        await job.event(chunk("tick "))
        await asyncio.sleep(TICK_S)
    await job.end(ok=False, cause="cancelled")


def pings(node: RawNode) -> int:
    return sum(message["type"] == "ping" for message in node.received)


@asynccontextmanager
async def meanwhile(served: Served):
    """Another client's stream and the node's link, which must not notice what goes on beside them."""
    async with served.node(ticks) as node, served.client() as client, stalls() as machine:
        await client.post(CHAT, {"model": MODEL, "stream": True, "ticking": True, "messages": [{"role": "user"}]})
        await client.read_until(b"tick ")

        async def read() -> None:
            while await client.read_some():
                pass

        reading = asyncio.create_task(read())
        before = pings(node)
        try:
            yield node
            await eventually(lambda: pings(node) > before and len(client.reply.pieces) > 1)
            assert not reading.done(), "the other stream ended"
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        gaps = [later - earlier for (earlier, _), (later, _) in pairwise(client.reply.pieces)]
        assert max(gaps) < PACE_S + 5 * machine.worst_s
        assert node.link is not None
        assert node.link.close_code is None
        assert served.wait_for_node(node.node_id)["state"] == "BUSY"


@pytest.mark.case("D-07")
@pytest.mark.case("D-01")
@pytest.mark.parametrize("more", [{}, {"mode": "COMMUNITY", "stream": True}], ids=["as it is", "with a field of ours"])
@pytest.mark.parametrize("megabytes", [3, 12, 30])
async def test_a_large_body_is_whole_at_the_node(served, megabytes, more):
    body = image_body(megabytes, **more)
    async with meanwhile(served) as node:
        reply = await served.ask(CHAT, body)
        assert reply.status == 200, reply.raw[:500]
        got = next(job for job in node.jobs if len(job.body) > 1_000_000)
        if more:
            wanted = {**json.loads(body), "stream_options": {"include_usage": True}}
            del wanted["mode"]
            assert json.loads(got.body) == wanted
        else:
            assert hashlib.sha256(got.body).digest() == hashlib.sha256(body).digest()
    receipt = await served.receipt(reply.headers["x-brain-receipt"])
    assert receipt["request_sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.case("D-07")
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_a_413_for_that_client_only(served, chunked):
    body = image_body(40)
    async with meanwhile(served) as node, RawClient(served.url, served.secret) as client:
        if chunked:
            await client.send(client.head_of("POST", CHAT, None, transfer_encoding="chunked"))
            reading = asyncio.create_task(client.answer())
            for start in range(0, len(body), 1_000_000):
                piece = body[start : start + 1_000_000]
                await client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await client.send(b"0\r\n\r\n")
            reply = await reading
        else:
            reply = await client.exchange("POST", CHAT, body)
        assert reply.status == 413
        assert reply.json["error"]["code"] == "body_too_large"
        assert "33554432" in reply.json["error"]["message"]
        assert len(node.jobs) == 1, "nothing of it may reach a node"


@pytest.mark.case("D-07")
async def test_a_large_answer_that_is_not_streamed_arrives_whole(served):
    text = "x" * 2_000_000

    async def script(job: RawJob) -> None:
        if job.request.get("ticking"):
            await ticks(job)
            return
        await job.accept()
        await job.head(content_type="application/json")
        message = {"choices": [{"message": {"content": text}}], "usage": usage(500_000)["usage"]}
        body = json.dumps(message).encode()
        for start in range(0, len(body), 250_000):
            await job.send(body[start : start + 250_000])
        await job.end()

    async with meanwhile(served) as node:
        node.script = script
        reply = await served.ask(CHAT, {"model": MODEL, "messages": [{"role": "user", "content": "x"}]})
        assert reply.json["choices"][0]["message"]["content"] == text


@pytest.mark.case("D-07")
async def test_one_event_of_megabytes_passes_through_a_stream(served):
    text = "y" * 3_000_000

    async def script(job: RawJob) -> None:
        if job.request.get("ticking"):
            await ticks(job)
            return
        await job.accept()
        await job.head()
        event = b"data: " + json.dumps(chunk(text)).encode() + b"\n\n"
        for start in range(0, len(event), 100_000):
            await job.send(event[start : start + 100_000])
        await job.event(chunk(finish="stop"))
        await job.end()

    async with meanwhile(served) as node:
        node.script = script
        body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "x"}]}
        reply = await served.ask(CHAT, body)
        assert reply.text == text


@pytest.mark.case("D-01")
async def test_a_large_answer_of_nothing_but_brackets_holds_up_nobody(served):
    async def script(job: RawJob) -> None:
        if job.request.get("ticking"):
            await ticks(job)
            return
        await job.accept()
        await job.head(content_type="application/json")
        await job.send(b'{"choices":[')
        for _ in range(300):
            await job.send(b"[]," * 66_666)
        await job.send(b"[]]}")
        await job.end()

    async with meanwhile(served) as node:
        node.script = script
        reply = await served.ask(CHAT, {"model": MODEL, "messages": [{"role": "user", "content": "x"}]})
        assert (reply.status, reply.json["error"]["code"]) == (502, "target_failed")
        assert reply.json["brain"]["attempts"][0]["cause"] == "protocol"
