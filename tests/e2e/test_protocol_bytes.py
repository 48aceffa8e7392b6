"""What a client wrote is what the engine reads, and the other way round: byte for byte, in every API form."""

import asyncio
import contextlib
import hashlib
import json

import pytest

from tests.gateway.engine_streams import REQUESTS, STREAMS, WHOLE
from tests.support.raw_node import RawJob, chunk, usage
from tests.support.served import MODEL, Served

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("bytes") / "coord") as running:
        yield running


def sends(*pieces: bytes, status: int = 200, content_type: str = "text/event-stream", **more):
    """A script: accept, these bytes, a clean end."""

    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head(status, content_type, **more)
        for piece in pieces:
            await job.send(piece)
        await job.end()

    return script


def event(value) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def without_brain(body: bytes) -> tuple[bytes, dict]:
    """A body without its `brain` member, cut out as bytes, and that member."""
    start = body.rindex(b',"brain":')
    rest = body[start + len(b',"brain":') :].decode()
    brain, length = json.JSONDecoder().raw_decode(rest)
    return body[:start] + rest[length:].encode(), brain


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_passes_byte_for_byte_in_every_form(served, path):
    raw = b"".join(STREAMS[path])
    async with served.node(sends(*STREAMS[path])) as node:
        body = {"model": MODEL, "stream": True, **REQUESTS[path]}
        if path in (CHAT, "/v1/completions"):
            body["stream_options"] = {"include_usage": True}
        reply = await served.ask(path, body)
    assert reply.whole
    assert reply.headers["content-type"].startswith("text/event-stream")
    passed, brain = without_brain(reply.body)
    assert passed == raw
    assert brain["node"] == reply.headers["x-brain-node"] == node.node_id
    assert brain["receipt"] == reply.headers["x-brain-receipt"]
    assert brain["class"] == reply.headers["x-brain-target"] == "NATIVE_NETWORK"
    assert brain["request_id"] == reply.headers["x-request-id"]
    assert brain["mode"] == reply.headers["x-brain-mode"]
    assert [job.body for job in node.jobs] == [json.dumps(body).encode()]
    assert node.jobs[0].message["path"] == path
    receipt = await served.receipt(brain["receipt"])
    assert receipt["outcome"] == "completed"
    assert receipt["route"] == path
    assert receipt["tokens"]["completion_reported"] == 3
    assert receipt["tokens"]["completion_billed"] == 3
    assert receipt["tokens"]["prompt_reported"] == (1 if path == "/v1/completions" else 3)
    assert receipt["response_sha256"] == hashlib.sha256(raw).hexdigest()
    assert receipt["request_sha256"] == hashlib.sha256(json.dumps(body).encode()).hexdigest()


@pytest.mark.parametrize("path", WHOLE)
async def test_a_whole_answer_passes_byte_for_byte_in_every_form(served, path):
    whole = WHOLE[path]
    async with served.node(sends(whole[:20], whole[20:], content_type="application/json")) as node:
        body = {"model": MODEL, **REQUESTS[path]}
        reply = await served.ask(path, body)
    passed, brain = without_brain(reply.body)
    assert passed == whole
    assert reply.headers["content-type"] == "application/json"
    assert brain["receipt"] == reply.headers["x-brain-receipt"]
    assert node.jobs[0].body == json.dumps(body).encode()
    receipt = await served.receipt(brain["receipt"])
    assert receipt["response_sha256"] == hashlib.sha256(whole).hexdigest()
    assert receipt["tokens"]["prompt_reported"] is not None
    assert receipt["tokens"]["completion_billed"] == (None if path == "/v1/embeddings" else 3)
    assert receipt["timings"]["decode_tok_s"] is None
    assert receipt["price"] is None, "the node asks none, and nothing else says what it costs"


@pytest.mark.case("C-09")
async def test_fields_that_nobody_here_knows_reach_the_engine_as_they_were_written(served):
    body = (
        b'{ "model": "brain/mock", "temperature": 1e-7, "seed": 1180591620717411303424, "top_p": 1.0,\n'
        b'  "chat_template_kwargs": {"enable_thinking": false}, "top_k": 40, "return_token_ids": true,\n'
        b'  "max_completion_tokens": 5, "response_format": {"type": "json_object"}, "stop": ["\\u00e9", "b"],\n'
        b'  "n": 2, "logprobs": true, "mode": "COMMUNITY", "tools": [{"type": "function", "mode": "mine"}],\n'
        b'  "messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": [\n'
        b'    {"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},\n'
        b'    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]},\n'
        b'    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": []}],\n'
        b'  "privacy": "PUBLIC", "parallel_tool_calls": false, "tool_choice": "auto", "odd": {"a": [1e400, -0.0]} }'
    ).replace(b"1e400", b"1e308")
    async with served.node(sends(WHOLE[CHAT], content_type="application/json")) as node:
        reply = await served.ask(CHAT, body)
        assert reply.status == 200
        assert reply.json["brain"]["mode"] == "COMMUNITY"
        unchanged = body.replace(b' "mode": "COMMUNITY",', b"").replace(b'"privacy": "PUBLIC",', b"")
        assert json.loads(node.jobs[0].body) == json.loads(unchanged)
        for text in (b"1e-7", b"1180591620717411303424", b"1.0", b'"\\u00e9"', b"-0.0", b'"mode": "mine"'):
            assert text in node.jobs[0].body
        assert b"COMMUNITY" not in node.jobs[0].body
        assert b"PUBLIC" not in node.jobs[0].body


@pytest.mark.case("C-09")
@pytest.mark.parametrize("asked", [True, False])
async def test_deltas_that_nobody_here_knows_reach_the_client_as_they_were_sent(served, asked):
    deltas = [
        {"role": "assistant", "content": None},
        {"reasoning": "hm"},
        {"reasoning_content": "hm"},
        {"content": None, "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"function": {"arguments": ": 1}"}}]},
        {"content": "x", "token_ids": [1, 2], "odd": 1.5e-9},
    ]
    events = [event({"choices": [{"index": n % 2, "delta": d}], "odd": 2**53}) for n, d in enumerate(deltas)]
    events += [event(chunk(finish="tool_calls"))]
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "n": 2}
    if asked:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": False}
    async with served.node(sends(*events, event(usage(9)), DONE)) as node:
        reply = await served.ask(CHAT, body)
    passed, _ = without_brain(reply.body)
    assert passed == b"".join([*events, *([event(usage(9))] if asked else []), DONE])
    assert node.jobs[0].request == {**body, "stream_options": {"include_usage": True, **body.get("stream_options", {})}}


@pytest.mark.case("C-01")
async def test_chunks_with_empty_choices_pass_in_order_and_are_no_first_token(served):
    quiet = [event({"choices": [], "x": 1}), event(chunk(role="assistant")), event(chunk(""))]
    rest = [event(chunk("Hello")), event(chunk(" you")), event(chunk(finish="stop")), event(usage(2)), DONE]
    begun, release = asyncio.Event(), asyncio.Event()

    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head()
        for each in quiet:
            await job.send(each)
        begun.set()
        await release.wait()
        for each in rest:
            await job.send(each)
        await job.end()

    async with served.node(script), served.client() as client:
        body = {"model": MODEL, "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
        await client.post(CHAT, body)
        reading = asyncio.ensure_future(client.answer())
        await begun.wait()
        done, _ = await asyncio.wait([reading], timeout=0.3)
        assert not done
        assert not client.reply.raw, "nothing may go out before real output"
        release.set()
        reply = await reading
    passed, brain = without_brain(reply.body)
    assert passed == b"".join([*quiet, *rest])
    assert brain["timings"]["first_output_ms"] > 150
    assert (await served.receipt(brain["receipt"]))["tokens"]["completion_reported"] == 2


@pytest.mark.case("C-03")
async def test_comments_line_ends_and_multi_line_data_written_byte_by_byte(served):
    first, second = json.dumps(chunk("two ")).split(', "delta"', 1)
    raw = b"".join(
        [
            b": OPENROUTER PROCESSING\n\n",
            b":\n\n",
            b"data:" + json.dumps(chunk("one ")).encode() + b"\r\n\r\n",
            b"data: " + first.encode() + b"\ndata: , " + b'"delta"' + second.encode() + b"\n\n",
            b"event: message\r"
            + b"id: 7\r"
            + b"retry: 100\r"
            + b"data: "
            + json.dumps(chunk("three")).encode()
            + b"\r\r",
            b": more\n\n",
            event(chunk(finish="stop")),
            event(usage(3)),
            DONE,
        ]
    )
    async with served.node(sends(*(raw[at : at + 1] for at in range(len(raw))))):
        body = {"model": MODEL, "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}}
        reply = await served.ask(CHAT, body)
    passed, brain = without_brain(reply.body)
    assert passed == raw
    receipt = await served.receipt(brain["receipt"])
    assert receipt["tokens"]["completion_reported"] == 3
    assert receipt["outcome"] == "completed"


@pytest.mark.case("C-05")
async def test_characters_cut_between_frames_arrive_whole_and_the_link_stays_open(served):
    text = "naive-ï 漢字 🌍"
    events = [
        b"data: " + json.dumps(chunk(text), ensure_ascii=False).encode() + b"\n\n",
        event(chunk(finish="stop")),
        DONE,
    ]
    raw = b"".join(events)
    async with served.node(sends(*(raw[at : at + 1] for at in range(len(raw))))) as node:
        reply = await served.ask(CHAT, {"model": MODEL, "messages": MESSAGES, "stream": True})
        passed, _ = without_brain(reply.body)
        assert passed == raw
        assert reply.text == text
        assert node.link is not None
        assert node.link.close_code is None


async def test_several_choices_interleaved_end_when_the_last_one_does(served):
    events = [
        event({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}),
        event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]}),
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        event({"choices": [{"index": 1, "delta": {"content": "c"}, "finish_reason": None}]}),
        event({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}),
    ]
    async with served.node(sends(*events, event(usage(3)), DONE)):
        reply = await served.ask(CHAT, {"model": MODEL, "messages": MESSAGES, "stream": True, "n": 2})
    passed, _ = without_brain(reply.body)
    assert passed == b"".join([*events, DONE])
    assert [bool(data.get("brain")) for data in reply.data[:-1]] == [False] * 4 + [True]


async def test_nothing_is_compressed_on_the_way_and_no_stale_header_is_passed_on(served):
    async with served.node(sends(WHOLE[CHAT], content_type="application/json")) as node:
        reply = await served.ask(CHAT, {"model": MODEL, "messages": MESSAGES}, accept_encoding="gzip, br, zstd")
        assert "content-encoding" not in reply.headers
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert reply.json["choices"]
        node.script = sends(*STREAMS[CHAT])
        reply = await served.ask(CHAT, {"model": MODEL, "messages": MESSAGES, "stream": True}, accept_encoding="gzip")
    assert "content-encoding" not in reply.headers
    assert reply.data[-1] == "[DONE]"


@pytest.mark.parametrize("origins", [[], ["*"]])
async def test_every_event_leaves_at_once_whatever_stands_between(served, tmp_path, origins):
    """No middleware, the one for other origins included, may hold the first bytes back until more come."""
    release = asyncio.Event()

    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head()
        await job.event(chunk("first "))
        await release.wait()
        await job.event(chunk("second"))
        await job.event(chunk(finish="stop"))
        await job.send(DONE)
        await job.end()

    with contextlib.ExitStack() as stack:
        if origins:
            served = stack.enter_context(Served(tmp_path / "coord", gateway={"cors_origins": origins}))
        async with served.node(script), served.client() as client:
            body = {"model": MODEL, "messages": MESSAGES, "stream": True}
            await client.post(CHAT, body, accept_encoding="gzip, br", origin="https://app.example")
            await client.read_until(b"first ")
            assert client.reply.status == 200
            assert client.reply.headers.get("access-control-allow-origin") == (origins[0] if origins else None)
            assert "x-ratelimit-limit-requests" in client.reply.headers
            release.set()
            assert (await client.answer()).text == "first second"


async def test_embeddings_keep_the_encoding_that_the_client_asked_for(served):
    async with served.node(sends(WHOLE["/v1/embeddings"], content_type="application/json")) as node:
        body = {"model": MODEL, "input": ["hello"], "encoding_format": "base64", "stream": True}
        reply = await served.ask("/v1/embeddings", body)
    assert reply.json["data"][0]["embedding"] == "AACAPwAAAEA="
    assert node.jobs[0].request == body
    assert reply.headers["content-type"] == "application/json"


async def test_a_model_has_one_name_in_the_list_the_request_and_the_reply(served):
    async with served.node() as node, served.client() as client:
        listed = (await client.exchange("GET", "/v1/models")).json["data"]
        assert [model["id"] for model in listed] == [MODEL, "brain/auto"]
        for model in listed:
            assert (await client.exchange("GET", f"/v1/models/{model['id']}")).json == model
        reply = await client.exchange("GET", "/v1/models/brain/mocc")
        assert reply.status == 404
        assert MODEL in reply.json["error"]["message"]
        reply = await client.exchange("POST", CHAT, {"model": MODEL, "messages": MESSAGES})
        assert reply.json["model"] == node.jobs[0].request["model"] == MODEL
        reply = await client.exchange("POST", CHAT, {"model": MODEL.upper(), "messages": MESSAGES})
        assert reply.status == 404
        assert reply.json["error"]["code"] == "model_not_found"
        assert MODEL in reply.json["error"]["message"]


async def test_the_model_that_brain_auto_chose_is_what_the_engine_is_asked_for(served):
    async with served.node(models=("qwen/qwen3-0.6b",), report={"os": "Linux", "vram_mib": 24000}) as node:
        body = b'{"model":"brain/auto","messages":[{"role":"user","content":"x"}],"temperature":1e-7}'
        reply = await served.ask(CHAT, body, x_brain_privacy="PUBLIC")
        assert reply.status == 200, reply.body
        assert node.jobs[0].body == (
            b'{"messages":[{"role":"user","content":"x"}],"temperature":1e-7,"model":"qwen/qwen3-0.6b"}'
        )
        assert reply.json["model"] == reply.json["brain"]["model"] == "qwen/qwen3-0.6b"


async def test_wishes_may_come_as_headers_and_the_body_has_the_last_word(served):
    async with served.node() as node:
        body = {"model": MODEL, "messages": MESSAGES}
        reply = await served.ask(CHAT, body, x_brain_mode="community", x_brain_node=node.node_id)
        assert reply.headers["x-brain-mode"] == "COMMUNITY"
        reply = await served.ask(CHAT, {**body, "mode": "FAST"}, x_brain_mode="CHEAP")
        assert reply.headers["x-brain-mode"] == "FAST"
        reply = await served.ask(CHAT, body, x_brain_mode="SOMEHOW")
        assert (reply.status, reply.json["error"]["param"]) == (400, "mode")
