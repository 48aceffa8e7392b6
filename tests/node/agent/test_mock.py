"""The mock: an OpenAI server that says what it is."""

import aiohttp
import orjson
import pytest

from brain_node.agent.mock import MockSource
from brain_node.agent.mock_server import MockServer
from brain_node.contract.messages import Job

HELLO = [{"role": "user", "content": "hello there"}]


@pytest.fixture
async def server():
    server = MockServer(word_s=0.0)
    await server.start()
    yield server
    await server.stop()


async def post(server: MockServer, path: str, **body):
    async with aiohttp.ClientSession() as http, http.post(server.base_url + path, json=body) as response:
        return response.status, await response.read()


async def chat(server: MockServer, **body):
    return await post(server, "/v1/chat/completions", **({"model": "brain/mock", "messages": HELLO} | body))


def events(raw: bytes) -> list:
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


async def test_a_whole_answer_says_that_no_model_ran(server):
    status, raw = await chat(server)
    answer = orjson.loads(raw)
    assert status == 200
    assert "mock: no model ran" in answer["choices"][0]["message"]["content"]
    assert answer["mock"] is True
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 14, "total_tokens": 16}


async def test_a_stream_comes_word_by_word_and_says_the_same(server):
    _, raw = await chat(server, stream=True)
    got = events(raw)
    assert got[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in got)
    assert "mock: no model ran" in text
    assert [event["choices"][0]["finish_reason"] for event in got[-2:]] == [None, "stop"]
    assert all(event["choices"] for event in got)


async def test_usage_comes_last_when_asked_for(server):
    _, raw = await chat(server, stream=True, stream_options={"include_usage": True})
    last = events(raw)[-1]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 14)


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_is_kept(server, limit):
    _, raw = await chat(server, **{limit: 3})
    choice = orjson.loads(raw)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("This is the ", "length")


async def test_ignore_eos_goes_on_to_the_limit(server):
    _, raw = await chat(server, stream=True, max_tokens=100, ignore_eos=True)
    assert sum("content" in event["choices"][0]["delta"] for event in events(raw)) == 101


async def test_legacy_completions_work_too(server):
    _, raw = await post(server, "/v1/completions", model="brain/mock", prompt="once upon", max_tokens=2)
    assert orjson.loads(raw)["choices"][0]["text"] == "This is "


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"model": "qwen/qwen3-8b"}, 404),
        ({"messages": "hello"}, 400),
        ({"messages": []}, 400),
        ({"max_tokens": 0}, 400),
        ({"max_tokens": "many"}, 400),
        ({"max_tokens": True}, 400),
    ],
)
async def test_faults_are_openai_errors(server, change, status):
    got, raw = await chat(server, **change)
    assert got == status
    assert set(orjson.loads(raw)["error"]) == {"message", "type", "param", "code"}


async def test_what_is_no_json_is_an_error(server):
    async with aiohttp.ClientSession() as http:
        for body in (b"{", b"[]"):
            async with http.post(server.base_url + "/v1/chat/completions", data=body) as response:
                assert response.status == 400


async def test_a_source_counts_its_slots():
    changes = []
    source = MockSource(slots=1)
    assert source.offers() == []
    await source.start(lambda: changes.append(1))
    job = Job(id="j", model="brain/mock", path="/v1/chat/completions", deadline_s=1.0, body_bytes=0)
    lease = source.claim(job)
    assert source.claim(job) == "busy"
    lease.finished("ok")
    assert source.claim(job) != "busy"
    assert source.claim(job.model_copy(update={"model": "other"})) == "no_engine"
    assert changes
    await source.stop()
