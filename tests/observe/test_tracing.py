"""Requests as traces: off without an endpoint, and with one a span each, its attempts below it, and W3C headers on both sides."""

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from brain_coord.classes.assembly import ClassSettings
from brain_coord.classes.upstream import Offer, UpstreamSpec
from brain_coord.observe.tracing import Tracing
from tests.support.configured import Configured
from tests.support.fake_openai import FakeOpenAi, status
from tests.support.in_process import Inside, coordinator_inside

PROMPT = "a prompt that no span may hold"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CLIENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


def upstream(server: FakeOpenAi, name: str) -> UpstreamSpec:
    offers = {model: Offer(model, model) for model in server.models}
    return UpstreamSpec(name, f"{server.url}/v1", offers, frozenset({"/v1/chat/completions"}), probe_s=0)


@dataclass
class Traced:
    """A coordinator that writes its spans into memory, before two upstreams of which the first is busy."""

    inside: Inside
    exporter: InMemorySpanExporter
    busy: FakeOpenAi
    fine: FakeOpenAi
    key: str

    async def ask(self, model: str = "m", headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": PROMPT}], **more}
        sent = {"authorization": f"Bearer {self.key}", **(headers or {})}
        async with httpx.AsyncClient(base_url=self.inside.url, trust_env=False, timeout=60) as http:
            return await http.post("/v1/chat/completions", json=body, headers=sent)

    def spans(self) -> tuple[Any, list[Any]]:
        """The span of the one request, and those of its attempts in order."""
        spans = sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)
        self.exporter.clear()
        return spans[0], spans[1:]


@pytest.fixture
async def traced(tmp_path):
    exporter = InMemorySpanExporter()
    async with FakeOpenAi("m", script=status(503)) as busy, FakeOpenAi("m") as fine:
        classes = ClassSettings(external=(upstream(busy, "busy"), upstream(fine, "fine")))
        async with coordinator_inside(tmp_path / "data", classes=classes) as inside:
            inside.coordinator.gateway.tracer = Tracing(SimpleSpanProcessor(exporter))
            _, key = await inside.coordinator.store.create_key("paid")
            yield Traced(inside, exporter, busy, fine, key)


def test_nothing_of_it_is_imported_without_an_endpoint():
    code = (
        "import sys, brain_coord.server; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_request_is_one_span_with_its_attempts_below_it(traced):
    reply = await traced.ask(stream=True)
    request, attempts = traced.spans()
    assert request.name == "POST /v1/chat/completions"
    assert request.parent is None
    about = request.attributes
    assert about["brain.request_id"] == reply.headers["x-request-id"]
    assert about["brain.receipt"] == reply.headers["x-brain-receipt"]
    assert (about["brain.outcome"], about["brain.class"]) == ("completed", "EXTERNAL_MODEL")
    assert (about["gen_ai.request.model"], about["gen_ai.usage.output_tokens"]) == ("m", 3)
    assert [each.attributes["brain.target"] for each in attempts] == ["busy", "fine"]
    assert [each.status.description for each in attempts] == ["status_503", None]
    assert all(each.parent.span_id == request.context.span_id for each in attempts)
    assert all(request.start_time <= each.start_time <= each.end_time <= request.end_time for each in attempts)


async def test_the_trace_of_the_client_goes_on_to_upstreams_below_their_attempt(traced):
    await traced.ask(headers=CLIENT)
    request, attempts = traced.spans()
    assert (f"{request.context.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    for server, attempt in zip((traced.busy, traced.fine), attempts, strict=True):
        (seen,) = server.requests
        assert seen.headers["traceparent"] == f"00-{TRACE}-{attempt.context.span_id:016x}-01"
        assert seen.headers["tracestate"] == "vendor=1"


async def test_a_header_that_is_none_begins_a_trace_of_our_own(traced):
    await traced.ask(headers={"traceparent": "00-zz-zz-01"})
    request, _ = traced.spans()
    assert request.parent is None


async def test_a_request_that_is_refused_before_any_attempt_is_a_span_with_the_code(traced):
    assert (await traced.ask("unknown")).status_code == 404
    request, attempts = traced.spans()
    assert (request.status.description, attempts) == ("model_not_found", [])
    traced.key = "bk-wrong"
    await traced.ask()
    assert traced.spans()[0].status.description == "invalid_api_key"


async def test_no_span_holds_a_word_of_the_request_or_its_key(traced):
    await traced.ask()
    text = "".join(span.to_json() for span in traced.exporter.get_finished_spans())
    assert "brain.outcome" in text
    for secret in (PROMPT, traced.key, "far away"):
        assert secret not in text


async def test_the_operators_share_decides_what_is_traced_and_not_a_clients_flag(traced):
    traced.inside.coordinator.gateway.tracer = Tracing(SimpleSpanProcessor(traced.exporter), share=0.0)
    assert (await traced.ask(headers=CLIENT)).status_code == 200
    assert traced.exporter.get_finished_spans() == ()
    assert traced.fine.requests[-1].headers["traceparent"].endswith("-00")


async def test_a_configured_coordinator_sends_its_spans_before_it_stops(tmp_path):
    got = ExportTraceServiceRequest()

    async def take(request: web.Request) -> web.Response:
        got.MergeFromString(await request.read())
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    table = f'[tracing]\notlp_url = "http://127.0.0.1:{port}/v1/traces"\n'

    def configured() -> Configured:
        return Configured(tmp_path / "data", table)

    coordinator = await asyncio.to_thread(configured)
    try:
        async with FakeOpenAi("m") as server:
            coordinator.reload(table, server.toml("external", "far", probe_s=0))
            assert (await coordinator.chat("m")).status_code == 200
        assert await asyncio.to_thread(coordinator.program.stop) == 0
    finally:
        await asyncio.to_thread(coordinator.program.kill)
        await runner.cleanup()
    (resource,) = got.resource_spans
    assert {span.name for scope in resource.scope_spans for span in scope.spans} == {
        "POST /v1/chat/completions",
        "attempt EXTERNAL_MODEL",
    }
