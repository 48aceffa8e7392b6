"""A server that runs already: watched, offered while it lists the models, left as it is."""

import asyncio

import pytest

from brain_node.agent import attach
from brain_node.agent.attach import AttachSource, EngineUrlError, engine_base
from brain_node.contract.messages import Job
from tests.support.eventually import eventually
from tests.support.fake_engine import FakeEngine
from tests.support.scripted_server import ScriptedServer, plain

MODEL = "qwen/qwen2.5-7b-instruct"
JOB = Job(id="j", model=MODEL, path="/v1/chat/completions", deadline_s=1.0, body_bytes=0)


@pytest.fixture(autouse=True)
def _check_often(monkeypatch):
    monkeypatch.setattr(attach, "CHECK_S", 0.02)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://host/prefix/v1", "https://host/prefix"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_the_address_with_or_without_v1(url, base):
    assert engine_base(url) == base


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://u:p@h", "http://h:port", "http://h?x=1", "http://a..b"]
)
def test_what_is_no_address_is_an_error(url):
    with pytest.raises(EngineUrlError):
        engine_base(url)


async def test_a_model_is_offered_while_the_server_lists_it():
    async with FakeEngine() as engine:
        source = AttachSource(engine.url + "/v1", {MODEL: "served-name"}, slots=2)
        assert source.claim(JOB) == "no_engine"
        changes = []
        await source.start(lambda: changes.append(1))
        await eventually(lambda: source.offers())
        offer = source.offers()[0]
        assert (offer.id, offer.loaded, offer.context, offer.slots) == (MODEL, True, 4096, 2)
        leases = [source.claim(JOB), source.claim(JOB)]
        assert leases[0].endpoint.served_name == "served-name"
        assert leases[0].endpoint.base_url == engine.url
        assert source.claim(JOB) == "busy"
        leases[0].finished("ok")
        assert source.claim(JOB) != "busy"

        engine.models = ["another"]
        await eventually(lambda: not source.offers())
        assert "lists no model served-name; it has another" in source.claims()[0].cause
        assert len(changes) == 2
        await source.stop()


LISTED = b'{"data": [{"id": "served-name", "max_model_len": 4096}]}'


@pytest.mark.parametrize(
    "rubbish",
    [
        plain(b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        plain(b'{"data": [{"id": "served-name", "max_model_len": 1%s}]}' % (b"0" * 400)),
        b"SSH-2.0-server\r\n\r\n",
        plain(b"x" * 5_000_000),
    ],
)
async def test_rubbish_is_told_as_such_and_the_next_look_is_as_good_as_ever(rubbish):
    said = [rubbish]

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(said[0])
        await writer.drain()
        return False

    async with ScriptedServer(answer) as server:
        source = AttachSource(server.url, {MODEL: "served-name"})
        await source.start(lambda: None)
        await eventually(lambda: "not usable" in (source.claims()[0].cause or ""))
        said[0] = plain(LISTED)  # without a content type, too
        await eventually(lambda: source.offers())
        assert source.offers()[0].context == 4096
        await source.stop()


async def test_a_server_behind_a_redirect_is_not_ready_as_no_job_would_reach_it():
    async with FakeEngine() as engine:

        async def answer(_: bytes, writer: asyncio.StreamWriter) -> bool:
            writer.write(f"HTTP/1.1 308 X\r\nlocation: {engine.url}/v1/models\r\ncontent-length: 0\r\n\r\n".encode())
            return False

        async with ScriptedServer(answer) as server:
            source = AttachSource(server.url, {MODEL: engine.models[0]})
            await source.start(lambda: None)
            await eventually(lambda: source.claims()[0].cause != "not checked yet")
            assert source.claims()[0].cause.endswith(
                f"a redirect to {engine.url}/v1/models: give the address that it leads to"
            )
            assert not source.offers()
            await source.stop()


async def test_a_name_that_does_not_exist_is_not_taken_for_a_server_that_is_down():
    source = AttachSource("http://no-such-host.invalid:8000", {MODEL: "served-name"})
    await source.start(lambda: None)
    await eventually(lambda: "name cannot be resolved" in (source.claims()[0].cause or ""))
    await source.stop()


async def test_a_server_that_goes_away_is_taken_out_and_comes_back():
    async with FakeEngine() as engine:
        source = AttachSource(engine.url, {MODEL: "served-name"})
        await source.start(lambda: None)
        await eventually(lambda: source.offers())
    await eventually(lambda: not source.offers())
    assert "refused" in source.claims()[0].cause
    async with FakeEngine(port=engine.port):
        await eventually(lambda: source.offers())
    await source.stop()


async def test_a_wrong_key_is_explained():
    async with FakeEngine(api_key="right") as engine:
        source = AttachSource(engine.url, {MODEL: "served-name"}, api_key="wrong")
        await source.start(lambda: None)
        await eventually(lambda: source.claims()[0].cause != "not checked yet")
        assert "BRAIN_NODE_ENGINE_KEY" in source.claims()[0].cause
        await source.stop()
        source = AttachSource(engine.url, {MODEL: "served-name"}, api_key="right")
        await source.start(lambda: None)
        await eventually(lambda: source.offers())
        await source.stop()


@pytest.mark.case("F-01")
async def test_proxy_variables_do_not_apply_to_the_check(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with FakeEngine() as engine:
        source = AttachSource(engine.url, {MODEL: "served-name"})
        await source.start(lambda: None)
        await eventually(lambda: source.offers())
        await source.stop()


@pytest.mark.case("B-09")
async def test_one_late_answer_does_not_take_a_busy_server_out():
    source = AttachSource("http://127.0.0.1:9", {MODEL: "served-name"})
    source._ready = {MODEL: 4096}
    source._missed("no answer within 5 s")
    source._missed("no answer within 5 s")
    assert source.offers()
    source._missed("no answer within 5 s")
    assert not source.offers()
