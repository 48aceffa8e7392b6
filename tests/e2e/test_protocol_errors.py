"""What clients are told when something is wrong: the right status, one shape, a stable code, never a path or a page."""

import json

import httpx
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from brain_coord.gateway.dialects import DIALECTS
from brain_coord.gateway.entry import Gateway
from tests.gateway.engine_streams import REQUESTS
from tests.support.in_process import coordinator_inside
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawJob
from tests.support.served import MODEL, Served

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello"}]
BODY = {"model": MODEL, "messages": MESSAGES}
TRACEBACK = b'Traceback (most recent call last):\n  File "/opt/engine/api.py", line 7, in chat\nRuntimeError: CUDA'
PAGE = b"<html><body>413 from /etc/nginx/nginx.conf</body></html>"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("errors") / "coord") as running:
        yield running


def answers(status: int, body: bytes, content_type: str = "application/json", **head):
    async def script(job: RawJob) -> None:
        await job.accept()
        await job.head(status, content_type, **head)
        await job.send(body)
        await job.end()

    return script


def check_shape(reply, status: int, code: str) -> dict:
    assert reply.status == status, reply.raw
    assert reply.headers["content-type"] == "application/json"
    error = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
    for hint in (b"Traceback", b"File \\", b"/opt/", b"/etc/", b"<html"):
        assert hint not in reply.raw
    return error


@pytest.mark.case("C-10")
@pytest.mark.parametrize("stream", [True, False])
async def test_an_engines_own_400_is_passed_on_with_its_status_and_its_words(served, stream):
    told = b'{"error":{"message":"max_tokens is too large: 9000","type":"BadRequestError","param":"max_tokens","code":400}}'
    async with served.node(answers(400, told)) as node:
        reply = await served.ask(CHAT, {**BODY, "stream": stream})
        assert (reply.status, reply.body) == (400, told)
        assert len(node.jobs) == 1
    receipt = await served.receipt(reply.headers["x-brain-receipt"])
    assert receipt["outcome"] == "refused"
    assert [attempt["status"] for attempt in receipt["attempts"]] == [400]


@pytest.mark.case("C-10")
async def test_a_busy_engines_retry_after_reaches_the_client_when_nobody_else_can_serve(served):
    busy = b'{"error":{"message":"overloaded","type":"x","param":null,"code":null}}'
    async with served.node(answers(429, busy, retry_after="17"), new=True):
        reply = await served.ask(CHAT, {**BODY, "stream": True})
        check_shape(reply, 429, "rate_limited")
        assert reply.headers["retry-after"] == "17"


@pytest.mark.case("C-10")
@pytest.mark.parametrize(("status", "ours"), [(429, "rate_limited"), (503, "no_capacity"), (529, "no_capacity")])
async def test_a_busy_engine_that_says_no_time_is_a_busy_one_too(served, status, ours):
    async with served.node(answers(status, b""), new=True):
        reply = await served.ask(CHAT, BODY)
    error = check_shape(reply, 429 if status == 429 else 503, ours)
    assert int(reply.headers["retry-after"]) > 0
    assert "x-should-retry" not in reply.headers
    assert error["message"] in (
        "every target that serves this model is busy",
        f"no target that serves {MODEL} took the request (asked: 1)",
    )


@pytest.mark.case("C-10")
async def test_an_html_page_from_an_engine_becomes_a_json_error_of_the_same_status(served):
    async with served.node(answers(413, PAGE, "text/html")):
        reply = await served.ask(CHAT, {**BODY, "stream": True})
    check_shape(reply, 413, "engine_refused")


@pytest.mark.case("C-10")
async def test_a_traceback_from_an_engine_is_kept_from_the_client(served):
    async with served.node(answers(500, TRACEBACK, "text/plain"), new=True):
        reply = await served.ask(CHAT, {**BODY, "stream": True})
    check_shape(reply, 502, "engine_error")
    assert b"CUDA" not in reply.raw


@pytest.mark.case("C-10")
@pytest.mark.parametrize(
    ("told", "message"),
    [
        (b'{"error":"Unauthorized prompt"}', "Unauthorized prompt"),
        (b'{"detail":"Not like this"}', "Not like this"),
        (b'{"message":"flat"}', "flat"),
        (b'{"error":{"message":"half a shape"}}', "half a shape"),
        (b"[]", "status 422"),
        (b"", "status 422"),
    ],
)
async def test_engines_errors_of_any_form_come_out_in_the_one_shape(served, told, message):
    async with served.node(answers(422, told)):
        reply = await served.ask(CHAT, BODY)
    assert message in check_shape(reply, 422, "engine_refused")["message"]


@pytest.mark.case("C-10")
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{broken", 400, "invalid_json"),
        (b"[1]", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b'{"model":"brain/mock","temperature":NaN,"messages":[1]}', 400, "invalid_json"),
        ({"model": MODEL}, 400, "missing_field"),
        ({"model": MODEL, "messages": []}, 400, "missing_field"),
        ({"messages": MESSAGES}, 400, "missing_field"),
        ({**BODY, "model": 7}, 400, "missing_field"),
        ({**BODY, "model": "m" * 1000}, 400, "invalid_field"),
        ({**BODY, "stream": "yes"}, 400, "invalid_field"),
        ({**BODY, "stream_options": 1}, 400, "invalid_field"),
        ({**BODY, "mode": "QUICKLY"}, 400, "invalid_field"),
        ({**BODY, "max_cost_usd": -1}, 400, "invalid_field"),
        ({**BODY, "model": "brain/mocc"}, 404, "model_not_found"),
    ],
)
async def test_a_clients_mistakes_are_named(served, body, status, code):
    reply = await served.ask(CHAT, body)
    check_shape(reply, status, code)
    assert reply.headers["x-request-id"].startswith("req-")


@pytest.mark.case("C-10")
async def test_a_bad_key_is_a_401(served):
    async with RawClient(served.url, "sk-wrong") as client:
        reply = await client.exchange("POST", CHAT, BODY)
    check_shape(reply, 401, "invalid_api_key")
    assert reply.headers["www-authenticate"] == "Bearer"
    async with RawClient(served.url) as client:
        check_shape(await client.exchange("POST", CHAT, BODY), 401, "invalid_api_key")


@pytest.mark.case("C-10")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *((method, CHAT) for method in ("GET", "PUT", "DELETE", "OPTIONS")),
        *((method, "/v1/models") for method in ("POST", "PUT", "DELETE", "OPTIONS")),
    ],
)
async def test_another_method_is_a_405_that_names_the_right_one(served, method, path):
    async with served.client() as client:
        reply = await client.exchange(method, path)
    check_shape(reply, 405, "method_not_allowed")
    assert reply.headers["allow"] == ("POST" if path == CHAT else "GET")


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 200), (CHAT, 405), ("/nowhere", 404)])
async def test_head_gets_the_status_and_no_body(served, path, status):
    async with httpx.AsyncClient(base_url=served.url) as http:
        reply = await http.head(path, headers={"authorization": f"Bearer {served.secret}"})
    assert (reply.status_code, reply.content) == (status, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/brain/mocc", 404),
        ("GET", "/v1/receipts", 200),
        ("GET", "/v1/receipts?from=soon", 400),
        ("GET", "/v1/nodes", 200),
        ("GET", "/v1/compute/jobs/none", 404),
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/route", 404),
        ("GET", CHAT, 405),
    ],
)
async def test_every_answer_of_the_api_has_an_id_of_its_own(served, method, path, status):
    asked = {**BODY, "model": "brain/mocc"} if method == "POST" else None
    async with served.client() as client:
        replies = [await client.exchange(method, path, asked) for _ in range(2)]
    async with RawClient(served.url) as stranger:
        replies.append(await stranger.exchange(method, path, asked))
    assert [reply.status for reply in replies[:2]] == [status, status]
    ids = {reply.headers["x-request-id"] for reply in replies}
    assert len(ids) == 3
    assert all(each.startswith("req-") for each in ids)


async def test_a_page_has_no_id(served):
    async with served.client() as client:
        assert "x-request-id" not in (await client.exchange("GET", "/network")).headers


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/models"), ("POST", CHAT), ("POST", "/v1/messages")])
async def test_a_fault_of_ours_is_logged_with_the_id_that_the_client_got(tmp_path, monkeypatch, method, path):
    """Even one that is not foreseen: where nothing answers, the connection does."""

    async def fails(*_: object) -> None:
        raise RuntimeError("not foreseen")

    async with coordinator_inside(tmp_path) as inside:
        monkeypatch.setattr("brain_coord.gateway.entry.authenticate", fails)
        monkeypatch.setattr("brain_coord.gateway.routes.context.authenticate", fails)
        monkeypatch.setattr(Gateway, "_fails", fails)
        with capture_logs([merge_contextvars]) as logged:
            async with RawClient(inside.url) as client:
                reply = await client.exchange(method, path, BODY)
    check_shape(reply, 500, "internal")
    assert [each["request_id"] for each in logged if each["log_level"] == "error"] == [reply.headers["x-request-id"]]


@pytest.mark.case("C-10")
async def test_with_no_node_it_is_a_503_with_a_time_to_come_back(served):
    reply = await served.ask(CHAT, {**BODY, "model": "qwen/qwen3-32b"})
    check_shape(reply, 503, "no_capacity")
    assert int(reply.headers["retry-after"]) > 0
    assert reply.json["brain"]["decision"]["class"]


async def test_nobody_is_told_to_come_back_for_what_the_privacy_of_the_request_keeps_from_it(served):
    async with served.node():
        reply = await served.ask(CHAT, {**BODY, "model": "brain/auto", "privacy": "STANDARD"})
    check_shape(reply, 503, "no_capacity")
    assert "privacy STANDARD does not allow it" in reply.json["error"]["message"]
    assert "retry-after" not in reply.headers
    assert reply.headers["x-should-retry"] == "false"


async def test_what_is_no_http_gets_json_too(served):
    async with RawClient(served.url) as client:
        await client.send(b"\x16\x03\x01 hello\r\n\r\n")
        check_shape(await client.answer(), 400, "invalid_request")


@pytest.mark.parametrize("path", ["/", "/v1/nothing", "/v1/chat/completions/", "/v1/messages/batches", "/v1/files"])
async def test_unknown_routes_are_404_in_the_one_shape(served, path):
    async with served.client() as client:
        check_shape(await client.exchange("POST", path, BODY), 404, "not_found")


async def test_a_compressed_body_is_refused_with_the_reason(served):
    reply = await served.ask(CHAT, b"\x1f\x8b", content_encoding="gzip")
    assert "gzip" in check_shape(reply, 415, "unsupported_encoding")["message"]


@pytest.mark.parametrize(
    "wish",
    [
        {"store": True},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"background": True},
    ],
)
async def test_responses_that_would_need_state_are_refused_clearly(served, wish):
    reply = await served.ask("/v1/responses", {"model": MODEL, "input": "x", **wish})
    error = check_shape(reply, 400, "unsupported_state")
    assert error["param"] == next(iter(wish))


async def test_responses_that_only_decline_state_are_served(served):
    body = {"model": MODEL, "input": "x", "store": False, "previous_response_id": None}
    async with served.node(answers(200, b'{"object":"response","output":[{"content":[{"text":"x"}]}]}')) as node:
        assert (await served.ask("/v1/responses", body)).status == 200
    assert node.jobs[0].request == body


@pytest.mark.parametrize(
    ("body", "key", "status", "kind"),
    [
        (b"{", None, 400, "invalid_request_error"),
        ({"model": MODEL, "max_tokens": 1}, None, 400, "invalid_request_error"),
        ({"model": "nope", "max_tokens": 1, "messages": MESSAGES}, None, 404, "not_found_error"),
        ({"model": MODEL, "max_tokens": 1, "messages": MESSAGES}, "wrong", 401, "authentication_error"),
        ({"model": "qwen/qwen3-32b", "max_tokens": 1, "messages": MESSAGES}, None, 503, "overloaded_error"),
    ],
)
async def test_errors_on_messages_have_the_shape_that_its_clients_read(served, body, key, status, kind):
    async with RawClient(served.url) as client:
        reply = await client.exchange("POST", "/v1/messages", body, x_api_key=key or served.secret)
    assert reply.status == status
    assert reply.json["type"] == "error"
    assert reply.json["error"]["type"] == kind
    assert reply.json["error"]["code"]
    assert reply.json["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]


async def test_an_engines_own_error_on_messages_keeps_its_shape_or_gets_it(served):
    own = b'{"type":"error","error":{"type":"invalid_request_error","message":"no such tool"}}'
    foreign = b'{"error":{"message":"Field required","type":"Bad Request","param":"body.max_tokens","code":400}}'
    body = {"model": MODEL, "messages": MESSAGES}
    async with served.node(answers(400, own)) as node:
        reply = await served.ask("/v1/messages", body)
        assert (reply.status, reply.body) == (400, own)
        node.script = answers(400, foreign)
        reply = await served.ask("/v1/messages", body)
    assert reply.json["type"] == "error"
    assert reply.json["error"] == {
        "type": "invalid_request_error",
        "message": "Field required",
        "param": "body.max_tokens",
        "code": "engine_refused",
    }


@pytest.mark.parametrize("path", [path for path in DIALECTS if path != CHAT])
async def test_a_form_that_the_engine_lacks_is_a_clear_404(served, path):
    async with served.node(answers(404, b'{"detail":"Not Found"}'), new=True):
        reply = await served.ask(path, {"model": MODEL, **REQUESTS[path]})
    assert reply.status == 404
    assert reply.json["error"]["message"] == f"nothing that serves {MODEL} offers {path}"


async def test_a_good_status_with_an_error_inside_is_an_engine_error(served):
    async with served.node(answers(200, b'{"error": {"message": "died at /opt/x"}}'), new=True):
        check_shape(await served.ask(CHAT, BODY), 502, "engine_error")


async def test_a_good_status_without_json_is_no_answer(served):
    async with served.node(answers(200, b"<html>ok</html>", "text/html"), new=True):
        check_shape(await served.ask(CHAT, BODY), 502, "target_failed")


async def test_pages_of_other_origins_may_not_call_unless_they_are_named(served, tmp_path):
    preflight = {"origin": "https://app.example", "access_control_request_method": "POST"}
    async with served.client() as client:
        reply = await client.exchange("OPTIONS", CHAT, **preflight)
        assert reply.status == 405
        assert not any(name.startswith("access-control") for name in reply.headers)
    with Served(tmp_path / "coord", gateway={"cors_origins": ["https://app.example"]}) as named:
        async with named.client() as client:
            reply = await client.exchange("OPTIONS", CHAT, **preflight, access_control_request_headers="x-brain-mode")
            assert reply.status == 200
            assert reply.headers["access-control-allow-origin"] == "https://app.example"
            assert "x-brain-mode" in reply.headers["access-control-allow-headers"]
            reply = await client.exchange("POST", CHAT, BODY, origin="https://app.example")
            assert reply.headers["access-control-allow-origin"] == "https://app.example"
            assert "x-brain-receipt" in reply.headers["access-control-expose-headers"]
            unanswerable = {"model": "brain/auto", "messages": BODY["messages"]}
            reply = await client.exchange("POST", "/v1/messages", unanswerable, origin="https://app.example")
            readable = {name.strip().lower() for name in reply.headers["access-control-expose-headers"].split(",")}
            ours = {name for name in reply.headers if not name.startswith("access-control-")}
            assert ours - readable == {"content-type", "content-length", "date", "vary"}
            assert {"request-id", "x-should-retry"} < ours
            reply = await client.exchange("OPTIONS", CHAT, **{**preflight, "origin": "https://evil.example"})
            assert "access-control-allow-origin" not in reply.headers


async def test_a_dry_run_takes_no_larger_body_than_the_real_route(served):
    async with served.client() as client:
        reply = await client.exchange("POST", "/v1/route", b"", content_length=str(33 * 1024 * 1024))
    check_shape(reply, 413, "body_too_large")


async def test_a_dry_run_tells_both_decisions_and_runs_nothing(served):
    async with served.node() as node:
        reply = await served.ask("/v1/route", BODY)
        assert reply.status == 200
        assert reply.json["sentence"].startswith("NATIVE_NETWORK")
        assert node.jobs == []
        assert json.loads(reply.body)["class"]
