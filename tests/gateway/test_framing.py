"""Where one request ends and the next begins: bytes of the one are never taken for the other, whatever a client sends."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brain_coord.gateway.connection import AHEAD
from tests.gateway.test_connection import CHAT, PATH, UNKNOWN, connected
from tests.support.configured import Configured
from tests.support.coordinator import eventually
from tests.support.fake_openai import FakeOpenAi, chat, silence
from tests.support.raw_client import RawClient, Reply

STREAM = {**CHAT, "stream": True}
WEBSOCKET = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
}
LINK = "/node/v1/link"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with Configured(tmp_path_factory.mktemp("coord") / "data", "") as running:
        yield running


def statuses(reply: Reply) -> list[int]:
    return [int(part[:3]) for part in bytes(reply.raw).split(b"HTTP/1.1 ")[1:]]


async def to_the_end(client: RawClient) -> Reply:
    while await client.read_some():
        pass
    return client.reply


async def test_a_client_that_is_refused_instead_of_asked_for_its_body_is_told_that_the_connection_ends(coordinator):
    async with RawClient(coordinator.url, "wrong") as client:
        await client.send(client.head_of("POST", PATH, UNKNOWN, expect="100-continue"))
        reply = await to_the_end(client)
    assert (statuses(reply), reply.headers["connection"]) == ([401], "close")


async def test_a_body_that_came_unasked_leaves_the_connection_open(coordinator):
    async with RawClient(coordinator.url, coordinator.secret) as client:
        await client.send(client.head_of("POST", PATH, UNKNOWN, expect="100-continue") + client.body_of(UNKNOWN))
        assert (await client.answer()).status == 404
        assert (await client.exchange("GET", "/healthz")).status == 200


async def echo(scope, receive, send):
    """Answers with the method and the body."""
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["method"].encode() + b" " + body})


async def passes(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("offer", [b"h2c", b"websocket"])
async def test_a_body_behind_an_offer_of_another_protocol_stays_a_body_and_is_no_request(offer):
    made, socket = connected(echo)
    asked = b"host: t\r\nconnection: upgrade\r\nupgrade: %b\r\n" % offer
    made.data_received(b"POST / HTTP/1.1\r\n%bcontent-length: 24\r\n\r\n" % asked)
    await passes()
    assert not socket.sent
    made.data_received(b"DELETE /all HTTP/1.1\r\n\r\n")
    await passes()
    assert socket.sent.endswith(b"POST DELETE /all HTTP/1.1\r\n\r\n\r\n0\r\n\r\n")
    chunked = b"POST / HTTP/1.1\r\n%btransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" % asked
    made.data_received(chunked + b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close, upgrade\r\nupgrade: h2c\r\n\r\n")
    await passes()
    assert b"POST abc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n" in socket.sent
    assert socket.sent.endswith(b"GET \r\n0\r\n\r\n")
    assert socket.closed


async def test_many_offers_in_one_packet_are_as_many_requests():
    made, socket = connected(echo)
    made.data_received(b"GET / HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" * 2000)
    await passes(5000)
    assert socket.sent.count(b"HTTP/1.1 200") == 2000


@dataclass(frozen=True)
class Asked:
    """A request as some client could frame it."""

    body: bytes
    refused: bool
    offer: str | None
    chunk: int | None
    blank: bool
    expects: bool

    @property
    def sent(self) -> bytes:
        head = [f"POST {'/refused' if self.refused else '/'} HTTP/1.1", "Host: t"]
        if self.offer is not None:
            head += ["Connection: Upgrade", f"Upgrade: {self.offer}"]
        if self.expects and not self.refused:
            head += ["Expect: 100-continue"]
        if self.chunk is None:
            head += [f"Content-Length: {len(self.body)}"]
            framed = self.body
        else:
            head += ["Transfer-Encoding: chunked"]
            cut = [self.body[at : at + self.chunk] for at in range(0, len(self.body), self.chunk)]
            framed = b"".join(b"%X;why=not\r\n%b\r\n" % (len(piece), piece) for piece in cut)
            framed += b"0\r\nAuthorization: it\r\nX-Behind: it\r\n\r\n"
        return b"\r\n" * self.blank + "\r\n".join([*head, "", ""]).encode() + framed

    @property
    def answer(self) -> bytes:
        return b"refused" if self.refused else b"POST " + self.body


LIKE_HTTP = b"GET /inner HTTP/1.1\r\nHost: t\r\n\r\n0\r\n\r\n"
ASKED = st.builds(
    Asked,
    body=st.one_of(st.binary(max_size=40), st.just(b""), st.just(LIKE_HTTP)),
    refused=st.booleans(),
    offer=st.sampled_from([None, None, "h2c", "websocket"]),
    chunk=st.one_of(st.none(), st.integers(1, 20)),
    blank=st.booleans(),
    expects=st.booleans(),
)


def answers_in(sent: bytes) -> list[bytes]:
    """The bodies of the answers, each of which comes in chunks; what asks for a body is none."""
    found, rest = [], sent
    while rest:
        rest = rest.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        head, _, rest = rest.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
        body = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            piece, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
            if not piece:
                break
            body += piece
        found.append(body)
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(ASKED, min_size=1, max_size=6), st.lists(st.tuples(st.integers(1, 90), st.integers(0, 4)), max_size=40))
def test_however_requests_are_framed_and_cut_each_gets_its_own_answer_in_its_turn(asked, cuts):
    async def app(scope, receive, send):
        if scope["path"] != "/refused":
            await echo(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"refused"})

    async def run() -> bytes:
        made, socket = connected(app)
        rest = b"".join(each.sent for each in asked)
        for size, pause in cuts:
            if rest:
                made.data_received(rest[:size])
            rest = rest[size:]
            await passes(pause)
        if rest:
            made.data_received(rest)
        await passes(100)
        assert not made.tasks
        assert not socket.closed
        return socket.sent

    assert answers_in(asyncio.run(run())) == [each.answer for each in asked]


NEVER_READ = {
    "no HTTP at all": b"\x00\x01\x02\r\n\r\n",
    "a head that is too large": b"GET /" + b"x" * 400_000,
    "a websocket": b"GET /node/v1/link HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "a tunnel": b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n",
    "a request whose body is broken": b"POST /v1/route HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n",
}


@pytest.mark.parametrize("ahead", NEVER_READ)
async def test_what_cannot_be_answered_ends_the_connection_behind_the_answers_that_are_due(coordinator, ahead):
    async with FakeOpenAi("m", script=chat(["word "] * 8, pause_s=0.1)) as server:
        coordinator.reload("", server.toml("external", "pipelined", probe_s=0))
        async with RawClient(coordinator.url, coordinator.secret) as client:
            await client.post(PATH, STREAM)
            await client.read_until(b"word ")
            await client.send(NEVER_READ[ahead])
            reply = await to_the_end(client)
    assert statuses(reply) == [200]
    assert reply.whole
    assert reply.text == "word " * 8


async def test_a_broken_body_is_told_unless_its_request_has_its_answer_already(coordinator):
    broken = b"POST %b HTTP/1.1\r\nhost: t\r\nauthorization: Bearer %b\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}"
    async with RawClient(coordinator.url) as client:
        await client.send(broken % (PATH.encode(), coordinator.secret.encode()))
        await client.send(b"no end of a chunk")
        reply = await to_the_end(client)
    assert statuses(reply) == [400]
    assert "Expected LF after chunk data" in reply.json["error"]["message"]
    async with RawClient(coordinator.url) as client:
        await client.send(broken % (PATH.encode(), b"wrong"))
        await client.read_until(b"invalid_api_key")
        await client.send(b"no end of a chunk")
        reply = await to_the_end(client)
    assert statuses(reply) == [401]


async def test_a_client_that_leaves_with_requests_sent_ahead_ends_the_one_that_runs(coordinator):
    async with FakeOpenAi("m", script=silence) as server:
        coordinator.reload("", server.toml("external", "pipelined", probe_s=0))
        async with RawClient(coordinator.url, coordinator.secret) as client:
            ahead = client.head_of("GET", "/healthz") * (AHEAD - 1)
            await client.send(client.head_of("POST", PATH, CHAT) + client.body_of(CHAT) + ahead)
            await asyncio.to_thread(eventually, lambda: server.running == 1)
        await asyncio.to_thread(eventually, lambda: server.running == 0, 5.0)


async def test_a_connection_is_read_while_few_requests_are_sent_ahead_so_that_its_end_is_seen():
    told = []

    async def waits(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        told.append(scope["path"])

    made, socket = connected(waits)
    made.data_received(b"GET /runs HTTP/1.1\r\nhost: t\r\n\r\n")
    await passes()
    for _ in range(AHEAD - 1):
        made.data_received(b"GET /ahead HTTP/1.1\r\nhost: t\r\n\r\n")
    assert not socket.paused
    made.data_received(b"GET /ahead HTTP/1.1\r\nhost: t\r\n\r\n")
    assert socket.paused
    made.connection_lost(None)
    await passes()
    assert told == ["/runs"]


async def test_what_stands_behind_a_body_is_bounded_and_no_part_of_the_head():
    seen = []

    async def app(scope, receive, send):
        await echo(scope, receive, send)
        seen.append(dict(scope["headers"]))

    made, socket = connected(app)
    head = b"POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2;why=not\r\n{}\r\n0\r\n"
    made.data_received(head)
    await asyncio.sleep(0)
    made.data_received(b"x-behind: yes\r\n\r\n")
    await passes()
    assert seen == [{b"host": b"test", b"transfer-encoding": b"chunked"}]
    assert socket.sent.endswith(b"POST {}\r\n0\r\n\r\n")
    for endless in (b"x-behind: yes\r\n" * 1000, b"x" * 16_000):
        made, socket = connected(app)
        made.data_received(head)
        for _ in range(6):
            made.data_received(endless)
        await asyncio.sleep(0)
        assert socket.sent.startswith(b"HTTP/1.1 431 ")
        assert socket.closed


async def test_a_client_from_before_chunks_gets_none_and_is_not_asked_for_its_body(coordinator):
    async with FakeOpenAi("m", script=chat()) as server:
        coordinator.reload("", server.toml("external", "pipelined", probe_s=0))
        async with RawClient(coordinator.url, coordinator.secret) as client:
            head = client.head_of("POST", PATH, STREAM).replace(b"HTTP/1.1", b"HTTP/1.0")
            await client.send(head + client.body_of(STREAM))
            reply = await to_the_end(client)
    assert reply.status == 200
    assert "transfer-encoding" not in reply.headers
    assert reply.body.endswith(b"data: [DONE]\n\n")
    assert reply.text == "far away text "
    made, socket = connected(echo)
    made.data_received(b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    await passes()
    assert not socket.sent
    made.data_received(b"{}")
    await passes()
    assert socket.sent.endswith(b"\r\nconnection: close\r\n\r\nPOST {}")


async def test_a_refusal_that_ends_the_connection_lets_the_body_come_first_so_that_no_reset_overtakes_it():
    async def refuses(scope, receive, send):
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    made, socket = connected(refuses)
    made.data_received(b"POST / HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 6\r\n\r\nabc")
    await passes()
    assert socket.sent.endswith(b"connection: close\r\n\r\n")
    assert not socket.closed
    made.data_received(b"def")
    assert socket.closed


async def test_a_websocket_whose_head_is_too_large_for_one_gets_an_answer_and_the_end(coordinator):
    async with RawClient(coordinator.url) as client:
        await client.send(client.head_of("GET", LINK, x="y" * 20_000, **WEBSOCKET))
        reply = await to_the_end(client)
    assert reply.status == 431


async def test_a_websocket_may_say_that_it_has_no_body(coordinator):
    async with RawClient(coordinator.url) as client:
        await client.send(client.head_of("GET", LINK, content_length="0", **WEBSOCKET))
        assert (await client.read_until(b"\r\n\r\n")).status == 101


async def test_a_whole_url_may_stand_in_the_request_line(coordinator):
    async with RawClient(coordinator.url) as client:
        assert (await client.exchange("GET", "http://coordinator.example/healthz?x=1")).status == 200
        assert (await client.exchange("GET", "http://coordinator.example")).json["error"]["code"] == "not_found"
