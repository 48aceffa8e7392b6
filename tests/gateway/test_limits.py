"""What one key may do, and what connections may cost: meters are pure, bounds are shown on the true server."""

import asyncio
import contextlib
import json
import resource
import socket

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.gateway.auth import Caller
from brain_coord.gateway.errors import ApiError
from brain_coord.gateway.guard import ConnectionBounds
from brain_coord.gateway.http import pairs_of
from brain_coord.gateway.limits import KEYS_KEPT, KeyMeters, PlanLimits, duration
from brain_coord.routing.vocabulary import Plan
from tests.support.configured import Configured
from tests.support.coordinator import CoordinatorProcess
from tests.support.eventually import eventually
from tests.support.fake_openai import FakeOpenAi, chat, cut, silence, status
from tests.support.raw_client import RawClient

FREE = PlanLimits(requests_per_min=60, concurrent=3, queue_share=0.25)
PAID = PlanLimits(requests_per_min=600, concurrent=100, queue_share=1.0)
CALLER = Caller("k-1", Plan.FREE)


def meters() -> KeyMeters:
    return KeyMeters({Plan.FREE: FREE, Plan.PAID: PAID})


def headers_of(pairs) -> dict[str, str]:
    return {name.decode().removeprefix("x-ratelimit-"): value.decode() for name, value in pairs}


def refusal(book: KeyMeters) -> ApiError:
    with pytest.raises(ApiError) as refused:
        book.admit(CALLER, 0.0)
    return refused.value


def test_every_answer_says_what_is_left_as_openai_does():
    permit = meters().admit(CALLER, 0.0)
    assert headers_of(pairs_of(permit.lines)) == {
        "limit-requests": "60",
        "remaining-requests": "59",
        "reset-requests": "1s",
    }


def test_requests_come_back_steadily():
    book = meters()
    for _ in range(60):
        book.admit(CALLER, 0.0).release()
    with pytest.raises(ApiError) as refused:
        book.admit(CALLER, 0.0)
    error = refused.value
    assert (error.status, error.code, error.retry_after_s) == (429, "rate_limited", 1)
    assert error.message == "this key's 60 requests a minute are used up; try again in 1 s"
    assert headers_of(error.headers) == {"limit-requests": "60", "remaining-requests": "0", "reset-requests": "1m0s"}
    book.admit(CALLER, 1.0).release()
    with pytest.raises(ApiError):
        book.admit(CALLER, 1.5)


@given(rate=st.integers(2, 3000), at=st.floats(0, 1e6), data=st.data())
def test_what_has_just_come_back_is_there_and_told(rate, at, data):
    back = data.draw(st.integers(1, rate - 1))
    book = KeyMeters({Plan.FREE: PlanLimits(rate, concurrent=3, queue_share=1.0)})
    for _ in range(rate):
        book.admit(CALLER, at).release()
    told = headers_of(pairs_of(book.admit(CALLER, at + back * 60 / rate).lines))
    assert told["remaining-requests"] == str(back - 1)
    assert told["reset-requests"] == duration(round((rate - back + 1) * 60 / rate, 5))


def test_a_refused_request_uses_nothing_up():
    book = meters()
    for _ in range(60):
        book.admit(CALLER, 0.0).release()
    for _ in range(1000):
        with pytest.raises(ApiError):
            book.admit(CALLER, 0.5)
    book.admit(CALLER, 1.0).release()


def test_so_many_at_a_time_and_the_place_is_free_at_any_end():
    book = meters()
    permits = [book.admit(CALLER, 0.0) for _ in range(3)]
    assert refusal(book).message == "this key's 3 requests at a time are running; try again in 1 s"
    permits[0].release()
    permits[0].release()
    book.admit(CALLER, 0.0)
    assert refusal(book).message == "this key's 3 requests at a time are running; try again in 1 s"


def test_keys_and_plans_do_not_share():
    book = meters()
    for _ in range(3):
        book.admit(CALLER, 0.0)
    book.admit(Caller("k-2", Plan.FREE), 0.0)
    for _ in range(50):
        book.admit(Caller("k-3", Plan.PAID), 0.0)
    assert book.running == 54


def test_a_new_plan_holds_at_once_for_keys_that_are_running():
    book = meters()
    permits = [book.admit(CALLER, 0.0) for _ in range(3)]
    book.plans = {Plan.FREE: PlanLimits(10, 2, 0.5), Plan.PAID: PAID}
    assert "2 requests at a time" in refusal(book).message
    for permit in permits:
        permit.release()
    assert headers_of(pairs_of(book.admit(CALLER, 0.0).lines))["remaining-requests"] == "9"
    assert book.running == 1


def test_keys_that_are_idle_are_forgotten_and_those_that_run_are_not():
    book = meters()
    running = book.admit(Caller("busy", Plan.FREE), 0.0)
    for number in range(KEYS_KEPT):
        book.admit(Caller(f"k-{number}", Plan.FREE), 0.0).release()
    for number in range(1000):
        book.admit(Caller(f"later-{number}", Plan.FREE), 120.0).release()
    assert len(book) <= KEYS_KEPT + 1
    assert book.running == 1
    running.release()
    assert book.running == 0


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200))
def test_no_pattern_gets_more_than_the_burst_and_the_rate(steps):
    book, now, admitted, running = meters(), 0.0, 0, []
    for later, ends in steps:
        now += later
        if ends and running:
            running.pop().release()
        try:
            running.append(book.admit(CALLER, now))
            admitted += 1
        except ApiError as error:
            assert error.retry_after_s >= 1
        assert 0 <= book.running == len(running) <= FREE.concurrent
        assert admitted <= FREE.requests_per_min + now * FREE.requests_per_min / 60 + 1e-6
    for permit in running:
        permit.release()
    assert book.running == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (1, "1s"),
        (8.64, "8.7s"),
        (59.99, "1m0s"),
        (0.9995, "1s"),
        (90, "1m30s"),
        (360, "6m0s"),
    ],
)
def test_durations_are_written_as_openai_writes_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("share", "limit", "places"), [(0.5, 10, 5), (0.01, 10, 1), (1.0, 256, 256)])
def test_a_key_may_fill_its_share_of_the_queue_and_at_least_one_place(share, limit, places):
    assert PlanLimits(1, 1, share).places(limit) == places


# --- through the true server -------------------------------------------------------------------------------------------

SETTINGS = """
[plans.free]
requests_per_min = 40
concurrent = 3
queue_share = 0.5
[plans.paid]
requests_per_min = 6000
concurrent = 100
queue_share = 1.0
[queue]
limit = 6
wait_s = 20
[limits]
connections = 12
head_kib = 4
headers = 16
head_s = 20
idle_s = 30
body_idle_s = 20
body_kib_per_s = 1
"""
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    with Configured(tmp_path_factory.mktemp("coord") / "data", SETTINGS) as running:
        yield running


def ratelimits(reply) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name.startswith("x-ratelimit-")}


async def test_every_answer_to_a_known_key_carries_the_limits(coordinator):
    key = coordinator.key("free")
    async with FakeOpenAi("m") as server, coordinator.http(key) as http:
        coordinator.reload(SETTINGS, server.toml("external", "answers", probe_s=0))
        replies = [
            await http.post("/v1/chat/completions", json=CHAT),
            await http.post("/v1/chat/completions", json={**CHAT, "stream": True}),
            await http.post("/v1/chat/completions", content=b"{"),
            await http.post("/v1/chat/completions", json={**CHAT, "model": "unknown"}),
            await http.post("/v1/chat/completions", json={**CHAT, "max_cost_usd": 0, "node": "N-0123456789ABCDEF"}),
        ]
        stranger = await http.post("/v1/chat/completions", json=CHAT, headers={"Authorization": "Bearer bk-no"})
    assert [reply.status_code for reply in replies] == [200, 200, 400, 404, 404]
    for number, reply in enumerate(replies):
        limits = ratelimits(reply)
        assert limits["x-ratelimit-limit-requests"] == "40"
        assert int(limits["x-ratelimit-remaining-requests"]) in (39 - number, 40 - number)
        assert limits["x-ratelimit-reset-requests"].endswith("s")
    assert (stranger.status_code, ratelimits(stranger)) == (401, {})


async def test_a_key_that_used_its_minute_up_is_told_when_to_come_back(coordinator):
    key = coordinator.key("free")
    async with coordinator.http(key) as http:
        codes = []
        while 429 not in codes:
            reply = await http.post("/v1/chat/completions", content=b"{")
            codes.append(reply.status_code)
    assert codes[:40] == [400] * 40
    assert len(codes) < 80
    assert reply.json()["error"]["code"] == "rate_limited"
    assert reply.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(reply.headers["retry-after"]) <= 3
    assert ratelimits(reply)["x-ratelimit-remaining-requests"] == "0"


async def test_a_key_has_so_many_requests_at_a_time_and_leaving_frees_the_place(coordinator):
    key = coordinator.key("free")
    async with FakeOpenAi("m", script=silence) as server:
        coordinator.reload(SETTINGS, server.toml("external", "holds", probe_s=0))
        holding = [asyncio.create_task(coordinator.chat("m", secret=key)) for _ in range(3)]
        await eventually(lambda: server.running == 3)
        refused = await coordinator.chat("m", secret=key)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        assert server.calls == 3
        holding[0].cancel()
        await eventually(lambda: server.hung_up == 1)
        server.script = chat()
        for _ in range(100):  # its receipt is written first
            if (after := await coordinator.chat("m", secret=key)).status_code == 200:
                break
        assert after.status_code == 200
        for task in holding:
            task.cancel()


async def test_a_greedy_key_fills_only_its_share_of_the_queue_and_the_others_get_their_turn(coordinator):
    greedy, modest = coordinator.key("free"), coordinator.key("paid")
    turns: list[str] = []
    release = asyncio.Event()

    async def one_by_one(request, body):
        turns.append(json.loads(body)["user"])
        await release.wait()
        return await chat()(request, body)

    async with FakeOpenAi("m", script=one_by_one) as server:
        wide = SETTINGS.replace("concurrent = 3", "concurrent = 50")
        coordinator.reload(wide, server.toml("external", "single", slots=1, probe_s=0))

        async def ask(key: str, name: str):
            return await coordinator.chat("m", secret=key, user=name)

        first = asyncio.create_task(ask(greedy, "greedy"))
        await eventually(lambda: len(turns) == 1)
        waiting = [asyncio.create_task(ask(greedy, "greedy")) for _ in range(5)]
        done, _ = await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert "of this key" in refused.json()["error"]["message"]
        waiting.append(asyncio.create_task(ask(modest, "modest")))
        await eventually(lambda: sum(task.done() for task in waiting) == 2)  # two of five found no place
        await asyncio.to_thread(coordinator.program.wait_for, "queue_full")
        await coordinator.until_metric("brain_requests_waiting", 4)  # three of the greedy key and the modest one
        release.set()
        replies = await asyncio.gather(first, *waiting)
    assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 200, 200, 429, 429]
    assert turns.index("modest") <= 2  # served before the greedy key's second waiting request
    assert len(turns) == 5


async def test_a_head_that_trickles_is_cut_off(coordinator):
    coordinator.reload(SETTINGS.replace("head_s = 20", "head_s = 0.5"))
    async with RawClient(coordinator.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        reply = await client.answer()
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
    assert "0.5 s" in reply.json["error"]["message"]
    assert reply.headers["connection"] == "close"


async def test_blank_lines_keep_no_connection_open(coordinator):
    coordinator.reload(SETTINGS.replace("idle_s = 30", "idle_s = 0.5", 1))
    async with RawClient(coordinator.url) as client:
        await client.send(b"\r\n")
        assert await client.read_some() == b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz?" + b"x" * 5000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: x\r\nbig: " + b"x" * 5000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % number for number in range(20)) + b"\r\n",
    ],
    ids=["line", "header", "headers"],
)
async def test_a_head_that_is_too_large_is_refused(coordinator, head):
    coordinator.reload(SETTINGS)
    async with RawClient(coordinator.url) as client:
        await client.send(head)
        reply = await client.answer()
    assert (reply.status, reply.json["error"]["code"]) == (431, "head_too_large")


async def test_a_head_without_an_end_is_refused_when_it_has_grown_too_large(coordinator):
    async with RawClient(coordinator.url) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\nbig: ")
        for _ in range(2):
            await asyncio.sleep(0.05)
            await client.send(b"x" * 3072)
        reply = await client.answer()
    assert (reply.status, reply.json["error"]["code"]) == (431, "head_too_large")


async def test_a_small_head_may_come_in_one_piece_with_a_body_that_is_larger_than_any_head(coordinator):
    coordinator.reload(SETTINGS)
    async with RawClient(coordinator.url, coordinator.secret) as client:
        reply = await client.exchange("POST", "/v1/chat/completions", {**CHAT, "user": "x" * 50_000})
        assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")
        reply = await client.exchange("GET", "/healthz", big="x" * 3000)
        assert reply.status == 200


async def test_connections_that_are_idle_for_too_long_are_closed_and_those_that_are_not_stay(coordinator):
    coordinator.reload(SETTINGS)
    async with (
        RawClient(coordinator.url) as silent,
        RawClient(coordinator.url) as once,
        RawClient(coordinator.url) as busy,
    ):
        assert (await once.exchange("GET", "/healthz")).status == 200
        coordinator.reload(SETTINGS.replace("idle_s = 30", "idle_s = 0.6", 1))
        reading = [asyncio.create_task(client.read_some()) for client in (silent, once)]
        while not all(task.done() for task in reading):
            assert (await busy.exchange("GET", "/healthz")).status == 200
            await asyncio.wait(reading, timeout=0.05)
        assert [task.result() for task in reading] == [b"", b""]
        assert await busy.read_some() == b""
    coordinator.reload(SETTINGS)


async def test_what_is_not_http_is_told_so_in_json(coordinator):
    async with RawClient(coordinator.url) as client:
        await client.send(b"\x16\x03\x01 hello\r\n\r\n")
        reply = await client.answer()
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")


async def test_a_body_that_trickles_is_cut_off_however_steadily_it_comes(coordinator):
    coordinator.reload(SETTINGS.replace("body_idle_s = 20", "body_idle_s = 0.5"))
    async with RawClient(coordinator.url, coordinator.secret) as client:
        await client.send(client.head_of("POST", "/v1/chat/completions", content_length="100000"))
        reading = asyncio.create_task(client.answer())
        while not reading.done():
            await client.send(b" ")
            await asyncio.wait((reading,), timeout=0.05)
        reply = reading.result()
    assert (reply.status, reply.json["error"]["code"]) == (408, "request_timeout")
    assert "too slowly" in reply.json["error"]["message"]


async def test_above_the_most_connections_the_idlest_goes_and_none_that_works(coordinator):
    async with FakeOpenAi("m", script=silence) as server, contextlib.AsyncExitStack() as stack:
        coordinator.reload(SETTINGS, server.toml("external", "busy", probe_s=0))
        working = [await stack.enter_async_context(RawClient(coordinator.url, coordinator.secret)) for _ in range(10)]
        for client in working:
            await client.post("/v1/chat/completions", CHAT)
        await eventually(lambda: server.running == 10)
        idle = [await stack.enter_async_context(RawClient(coordinator.url)) for _ in range(2)]
        for client in idle:
            assert (await client.exchange("GET", "/healthz")).status == 200
        async with RawClient(coordinator.url) as newcomer:
            assert (await newcomer.exchange("GET", "/healthz")).status == 200
            assert await idle[0].read_some() == b""  # the one that was idle for longest made room
        more = [await stack.enter_async_context(RawClient(coordinator.url, coordinator.secret)) for _ in range(2)]
        for client in more:
            await client.post("/v1/chat/completions", CHAT)
        await eventually(lambda: server.running == 12)
        async with RawClient(coordinator.url) as refused:
            reply = await refused.answer()
            assert (reply.status, reply.json["error"]["code"]) == (503, "too_many_connections")
            assert reply.headers["retry-after"] == "5"
        assert server.running == 12


async def test_after_every_kind_of_ending_the_counters_are_back_at_nothing(coordinator):
    async with FakeOpenAi("m") as server:
        coordinator.reload(SETTINGS, server.toml("external", "ends", slots=4, probe_s=0))
        for script, stream in (
            (chat(), True),
            (chat(), False),
            (cut(), False),
            (status(500), True),
            (status(400), False),
        ):
            server.script = script
            await asyncio.gather(*(coordinator.chat("m", stream=stream, user=str(n)) for n in range(4)))
        server.script = silence
        leaving = [asyncio.create_task(coordinator.chat("m", stream=stream)) for stream in (True, False) * 4]
        await eventually(lambda: server.running == 4)
        for task in leaving:
            task.cancel()
        await coordinator.until_target("ends", active=0)
        server.script = chat()
        key = coordinator.key("free")
        for _ in range(4):  # more than may run at a time: none of them left its place taken
            assert (await coordinator.chat("m", secret=key)).status_code == 200


async def test_idle_connections_cannot_use_up_the_files_that_a_shell_allows(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        running = CoordinatorProcess(tmp_path / "data")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with running, contextlib.ExitStack() as idle:
        for _ in range(150):
            idle.enter_context(socket.create_connection(("127.0.0.1", running.port)))
        async with httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=30) as client:
            assert (await client.get("/healthz")).status_code == 200


def test_where_few_files_may_be_open_clients_get_half_of_them():
    bounds = ConnectionBounds(connections=100, files=20)
    bounds.open = 9
    assert bounds.make_room()
    bounds.open = 10
    assert not bounds.make_room()
