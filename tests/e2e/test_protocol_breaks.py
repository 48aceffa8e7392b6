"""When one side breaks off: one answer or one error, never two texts in one, and the right one is blamed."""

import asyncio
import json
from time import monotonic

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.raw_node import RawJob, answer, chunk, usage
from tests.support.served import MODEL, Served
from tests.support.stalls import stalls

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
STREAM = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": True}
WHOLE = {**STREAM, "stream": False}
WORDS = [f"word{number} " for number in range(5)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(
        tmp_path_factory.mktemp("breaks") / "coord",
        gateway={"keepalive_s": 0.4},
        connections={"stall_s": 1.0},
        phases={"first_output_s": 3.0, "between_events_s": 3.0},
    ) as running:
        yield running


async def begin(job: RawJob, words=WORDS) -> None:
    await job.accept()
    await job.head()
    await job.event(chunk("", role="assistant"))
    for word in words:
        await job.event(chunk(word))


async def finish(job: RawJob, tokens: int) -> None:
    await job.event(chunk(finish="stop"))
    await job.event(usage(tokens))
    await job.send(DONE)
    await job.end()


async def resets(job: RawJob) -> None:
    await begin(job)
    await asyncio.sleep(0.1)
    await job.drop()


async def ends_without_a_finish(job: RawJob) -> None:
    await begin(job)
    await job.end()


async def reports_an_error(job: RawJob) -> None:
    await begin(job)
    await job.event({"error": {"message": "EngineDeadError at /opt/vllm", "type": "x", "code": 500}})
    await job.send(DONE)
    await job.end()


async def falls_silent(job: RawJob) -> None:
    await begin(job)
    await job.cancelled.wait()
    await job.end(ok=False, cause="cancelled")


@pytest.mark.case("C-07")
@pytest.mark.parametrize("breaks", [resets, ends_without_a_finish, reports_an_error, falls_silent])
async def test_an_answer_that_breaks_off_ends_in_one_error_and_never_looks_complete(served, breaks):
    async with served.node(new=True) as healthy, served.node(new=True) as other:
        first = asyncio.Event()

        async def script(job: RawJob) -> None:
            if first.is_set():
                await answer(job)
            else:
                first.set()
                await breaks(job)

        healthy.script = other.script = script
        reply = await served.ask(CHAT, STREAM)
        jobs = [*healthy.jobs, *other.jobs]
    assert reply.whole
    assert reply.text == "".join(WORDS), "all that was sent, and nobody else's words"
    errors = [data["error"] for data in reply.data if "error" in data]
    assert len(errors) == 1
    assert "error" in reply.data[-1]
    assert "[DONE]" not in reply.data
    assert set(errors[0]) == {"message", "type", "param", "code"}
    assert errors[0]["code"] == "incomplete"
    assert b"/opt/vllm" not in reply.raw
    assert not any(choice.get("finish_reason") for data in reply.data for choice in data.get("choices", ()))
    assert len(jobs) == 1, "a second node must not be asked once text was sent"
    receipt = await served.receipt(reply.headers["x-brain-receipt"])
    assert (receipt["outcome"], receipt["error"]) == ("incomplete", "incomplete")
    assert [attempt["blamed"] for attempt in receipt["attempts"]] == [True]
    assert receipt["tokens"]["completion_counted"] > 0
    assert receipt["response_sha256"]


@pytest.mark.case("C-07")
@pytest.mark.parametrize(
    ("path", "events", "name"),
    [
        (
            "/v1/messages",
            [("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}})],
            b"event: error\n",
        ),
        (
            "/v1/responses",
            [("response.output_text.delta", {"type": "response.output_text.delta", "delta": "x"})],
            b"event: error\n",
        ),
    ],
)
async def test_the_error_event_is_one_of_the_form_that_was_asked_for(served, path, events, name):
    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head()
        for kind, value in events:
            await job.send(f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode())
        await job.end()

    body = {"model": MODEL, "stream": True, "input": "x", "messages": [{"role": "user", "content": "x"}]}
    async with served.node(script, new=True):
        reply = await served.ask(path, body)
    assert reply.events[-1].startswith(name)
    assert reply.data[-1]["type"] == "error"
    assert reply.data[-1]["error"]["code"] == "incomplete"


@pytest.mark.case("E-06")
async def test_a_node_that_dies_before_it_said_anything_is_replaced_and_both_tries_are_told(served):
    async with served.node(new=True) as one, served.node(new=True) as two:
        first = asyncio.Event()

        async def script(job: RawJob) -> None:
            if first.is_set():
                await answer(job, words=["once ", "only "])
                return
            first.set()
            await job.accept()
            await job.head()
            await job.event(chunk("", role="assistant"))
            await job.drop()

        one.script = two.script = script
        reply = await served.ask(CHAT, STREAM)
        assert sorted(map(len, (one.jobs, two.jobs))) == [1, 1]
    assert reply.text == "once only "
    assert sum("role" in choice["delta"] for data in reply.data[:-1] for choice in data["choices"]) == 1
    receipt = await served.receipt(reply.headers["x-brain-receipt"])
    assert [attempt["cause"] for attempt in receipt["attempts"]] == ["node_lost", None]
    assert {attempt["target"] for attempt in receipt["attempts"]} == {one.node_id, two.node_id}
    assert reply.data[-2]["brain"]["attempts"] == 2
    assert reply.data[-2]["brain"]["route"].endswith(f" [tried before: {receipt['attempts'][0]['target']} node_lost]")
    assert reply.data[-2]["brain"]["node"] == receipt["node"] == receipt["attempts"][1]["target"]


@pytest.mark.case("D-02")
async def test_a_long_wait_is_kept_alive_by_comments_and_another_node_may_still_answer(served):
    async with served.node(new=True) as one, served.node(new=True) as two:
        first = asyncio.Event()

        async def script(job: RawJob) -> None:
            if first.is_set():
                await job.accept()
                await job.head()
                await asyncio.sleep(1.0)
                await job.event(chunk("late"))
                await asyncio.sleep(1.0)
                await finish(job, 1)
            else:
                first.set()
                await job.accept()
                await asyncio.sleep(1.0)
                await job.drop()

        one.script = two.script = script
        reply = await served.ask(CHAT, STREAM)
    assert reply.status == 200
    assert reply.text == "late"
    kinds = ["comment" if block.startswith(b":") else "data" for block in reply.events]
    assert kinds.index("data") >= 3, "comments before the first output"
    assert "comment" in kinds[kinds.index("data") :], "and between events"
    assert reply.data[-1] == "[DONE]"


async def test_after_a_comment_has_fixed_the_status_an_error_comes_as_one_event(served):
    async def script(job: RawJob) -> None:
        await job.accept()
        await asyncio.sleep(1.0)
        await job.head(400, "application/json")
        await job.send(b'{"error":{"message":"too long","type":"x","param":null,"code":null}}')
        await job.end()

    async with served.node(script):
        reply = await served.ask(CHAT, STREAM)
    assert reply.status == 200
    assert reply.whole
    assert [data["error"]["message"] for data in reply.data] == ["too long"]
    assert (await served.receipt(reply.headers["x-brain-receipt"]))["outcome"] == "refused"


class Hung:
    """A script that holds its job until it is cancelled, and notes when."""

    def __init__(self, words=()) -> None:
        self.words = words
        self.began = asyncio.Event()
        self.ended_at = 0.0

    async def __call__(self, job: RawJob) -> None:
        await job.accept()
        if self.words:
            await job.head()
            for word in self.words:
                await job.event(chunk(word))
        self.began.set()
        await job.cancelled.wait()
        self.ended_at = monotonic()
        await job.end(ok=False, cause="cancelled")


async def outcome_of(served: Served, key: str) -> dict:
    """The last receipt of the key."""
    async with served.client() as client:
        reply = await client.exchange("GET", "/v1/receipts")
    return json.loads(reply.body.splitlines()[-1])["body"]


@pytest.mark.case("C-08")
@pytest.mark.parametrize("how", ["reset", "close", "half_close"])
@pytest.mark.parametrize(
    ("body", "words"),
    [(STREAM, ()), (STREAM, ("one ", "two ")), (WHOLE, ())],
    ids=["before the first byte", "after two chunks", "in a call that is not streamed"],
)
async def test_a_client_that_leaves_ends_the_work_and_nobody_is_blamed(served, body, words, how):
    script = Hung(words)
    async with served.node(script) as node, stalls() as machine:
        before = await asyncio.to_thread(served.wait_for_node, node.node_id)
        client = await served.client().__aenter__()
        await client.post(CHAT, body)
        await script.began.wait()
        if words:
            await client.read_until(b"two ")
        left = monotonic()
        result = getattr(client, how)()
        if result is not None:
            await result
        await eventually(lambda: script.ended_at)
        assert script.ended_at - left < 2.0 + 10 * machine.worst_s
        after = await asyncio.to_thread(served.wait_for_node, node.node_id, active=0)
        assert after["state"] == "ONLINE"
        assert after["reliability"] == before["reliability"]
        receipt = await outcome_of(served, served.secret)
        await client.close()
    assert receipt["outcome"] == "client_cancelled"
    assert receipt["node"] == node.node_id
    assert [(attempt["cause"], attempt["blamed"]) for attempt in receipt["attempts"]] == [("cancelled", False)]


async def test_a_client_that_leaves_while_it_waits_for_a_slot_leaves_no_trace(served):
    script = Hung()
    async with served.node(script, new=True, slots=1):
        async with served.client() as holder:
            await holder.post(CHAT, STREAM)
            await script.began.wait()
            async with served.client() as waiter:
                await waiter.post(CHAT, STREAM)
                await waiter.read_until(b": waiting")
                waiter.reset()
        await eventually(lambda: script.ended_at)
        assert (await served.ask(CHAT, {**STREAM, "model": "brain/none"})).status == 404


def connections(served: Served, port: int) -> list[str]:
    return [
        connection.status
        for connection in psutil.Process(served.program.pid).net_connections("tcp")
        if connection.raddr and connection.raddr.port == port
    ]


def memory(served: Served) -> int:
    return psutil.Process(served.program.pid).memory_info().rss


async def floods(job: RawJob) -> None:
    """Sends for ever, as fast as it is taken."""
    await job.accept()
    await job.head()
    while not job.cancelled.is_set():
        await job.event(chunk("x" * 8192))
    await job.end(ok=False, cause="cancelled")


async def test_a_client_that_stops_reading_is_cut_off_and_the_node_is_free_again(served):
    async with served.node(floods) as node, served.client(receive_buffer=4096) as client:
        before = memory(served)
        await client.post(CHAT, STREAM)
        await client.read_until(b"\r\n\r\n")
        port = client.writer.get_extra_info("sockname")[1]
        client.writer.transport.pause_reading()
        assert connections(served, port) == ["ESTABLISHED"]
        after = await asyncio.to_thread(served.wait_for_node, node.node_id, 30.0, active=0)
        assert after["state"] == "ONLINE"
        assert "ESTABLISHED" not in connections(served, port)
        assert memory(served) - before < 32 * 1024 * 1024
        receipt = await served.receipt(client.reply.headers["x-brain-receipt"])
    assert receipt["outcome"] == "slow_client"
    assert [attempt["blamed"] for attempt in receipt["attempts"]] == [False]


def large(size: int):
    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head(content_type="application/json")
        body = json.dumps({"choices": [{"message": {"content": "x" * size}}], "usage": usage(9)["usage"]}).encode()
        for start in range(0, len(body), 200_000):
            await job.send(body[start : start + 200_000])
        await job.end()

    return script


async def test_a_finished_answer_that_nobody_reads_does_not_stay_in_memory(served):
    async with served.node(large(16_000_000)), served.client(receive_buffer=4096) as client:
        await client.post(CHAT, WHOLE)
        await client.read_until(b"\r\n\r\n")
        client.writer.transport.pause_reading()
        port = client.writer.get_extra_info("sockname")[1]
        await eventually(lambda: "ESTABLISHED" not in connections(served, port))
        receipt = await served.receipt(client.reply.headers["x-brain-receipt"])
    assert receipt["outcome"] == "completed"


async def test_a_slow_reader_that_goes_on_reading_gets_all_of_it(served):
    async with served.node(large(3_000_000)), served.client(receive_buffer=65536) as client:
        await client.post(CHAT, WHOLE)
        while not client.reply.whole:
            assert await client.read_some(65536), "cut off"
            await asyncio.sleep(0.05)
    assert client.reply.json["brain"]["receipt"]


@pytest.mark.case("E-10")
@pytest.mark.parametrize(
    ("events", "tail", "tokens", "counted_by", "rate"),
    [
        (5, [json.dumps(usage(25))], 25, "text bound", True),
        (30, [json.dumps(usage(25))], 25, "text bound", True),
        (5, [json.dumps(usage(5)), json.dumps(usage(15)), json.dumps(usage(25))], 25, "text bound", True),
        (5, [], None, "estimate", True),
        (1, [json.dumps(usage(25))], 25, "text bound", False),
    ],
    ids=["few events", "many events", "cumulative", "no usage", "one event"],
)
@pytest.mark.parametrize("glued", [True, False])
async def test_tokens_come_from_the_last_usage_and_speed_from_our_clock(
    served, events, tail, tokens, counted_by, rate, glued
):
    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head()
        for _ in range(events):
            await job.event(chunk("w" * (150 // events)))
            await asyncio.sleep(0.02)
        await job.event(chunk(finish="stop"))
        end = [f"data: {text}\n\n".encode() for text in tail] + [DONE]
        for piece in [b"".join(end)] if glued else end:
            await job.send(piece)
        await job.end()

    async with served.node(script):
        reply = await served.ask(CHAT, STREAM)
    receipt = await served.receipt(reply.headers["x-brain-receipt"])
    assert receipt["tokens"]["completion_reported"] == tokens
    assert receipt["tokens"]["completion_billed"] == (tokens or receipt["tokens"]["completion_counted"])
    assert receipt["tokens"]["counted_by"] == counted_by
    assert (receipt["timings"]["decode_tok_s"] is not None) is rate
    if rate and tokens:
        first = max(1.0, tokens / events)
        expected = (tokens - first) / (receipt["timings"]["decode_ms"] / 1000)
        assert receipt["timings"]["decode_tok_s"] == pytest.approx(expected, rel=0.05)
