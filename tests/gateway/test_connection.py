"""What HTTP lets a client do on one connection, shown on the true server."""

import pytest

from tests.support.configured import Configured
from tests.support.fake_openai import FakeOpenAi, chat
from tests.support.raw_client import RawClient, Reply

PATH = "/v1/chat/completions"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
UNKNOWN = {**CHAT, "model": "unknown"}


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
