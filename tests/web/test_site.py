"""The site over HTTP: what anybody sees, what only an operator may, and what no page says."""

import asyncio
import contextlib
import json
import re
import sqlite3
import stat
from collections.abc import Iterator

import httpx
import pytest

from brain_coord.gateway.dialects import DIALECTS
from tests.support.coordinator import CoordinatorProcess, brain_coord
from tests.support.raw_node import RawNode

PROMPT = "a-prompt-that-must-not-be-seen"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("site") / "coord", "--open-join") as running:
        yield running


@pytest.fixture
def client(coordinator: CoordinatorProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=coordinator.url, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture
def secret(coordinator: CoordinatorProcess) -> str:
    return str(coordinator.command("operator", "create")["secret"])


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_every_page_has_a_strict_policy_and_is_not_kept(client):
    paths = ("/network", "/network/verify", "/network/playground", "/network/operator", "/network/nodes/N-1")
    for path in paths:
        reply = client.get(path)
        policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", reply.text), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', reply.text), path


def test_files_are_served_by_name_only_and_kept_by_their_tag(client):
    reply = client.get("/network/static/network.js")
    assert reply.headers["content-type"].startswith("text/javascript")
    again = client.get("/network/static/network.js", headers={"if-none-match": reply.headers["etag"]})
    assert again.status_code == 304
    for name in ("../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "uplot/LICENSE", "/etc/passwd", "nothing.js"):
        assert client.get(f"/network/static/{name}").status_code == 404, name


async def test_no_public_page_says_who_asked_what(coordinator):
    key = coordinator.key()
    async with (
        RawNode(coordinator.url) as node,
        httpx.AsyncClient(base_url=coordinator.url, trust_env=False, timeout=30) as http,
    ):
        await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
        body = {"model": "brain/mock", "messages": [{"role": "user", "content": PROMPT}], "user": PROMPT}
        reply = await http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
        brain, answer = reply.json()["brain"], reply.json()["choices"][0]["message"]["content"]
        decision = "d-" + brain["receipt"][2:]
        receipt = (
            await http.get(f"/v1/receipts/{brain['receipt']}", headers={"authorization": f"Bearer {key}"})
        ).json()
        secrets = [PROMPT, answer, key, receipt["body"]["key"], receipt["body"]["request_sha256"], "127.0.0.1"]
        for path in (
            "/network",
            f"/network/nodes/{node.node_id}",
            f"/network/decisions/{decision}",
            f"/network/decisions/{decision}?part=true",
            f"/network/receipts/{brain['receipt']}",
            "/network/models/brain/mock",
            "/network/history",
            "/metrics",
        ):
            text = (await http.get(path)).text.replace(coordinator.url, "")
            assert [secret for secret in secrets if secret in text] == [], path
        assert decision in (await http.get("/network")).text
        assert "score" in (await http.get(f"/network/decisions/{decision}?part=true")).text
    # Nor does a log line: ids of the request and of its decision are all that names it.
    lines = [line for line in coordinator.program.lines if '"request"' in line]
    assert any(decision in line and brain["request_id"] in line for line in lines)
    assert PROMPT not in coordinator.program.output
    assert answer.strip() not in coordinator.program.output
    assert key not in coordinator.program.output


def test_nobody_is_operator_without_a_secret(coordinator, client):
    brain_coord("operator", "revoke", "--data-dir", str(coordinator.data_dir))
    assert "brain-coord operator create" in client.get("/network/operator").text
    reply = client.post("/network/operator/login", data={"secret": ""})
    assert reply.status_code == 403
    assert "set-cookie" not in reply.headers
    assert client.get("/network/operator/receipts/r-1").status_code == 401
    assert client.post("/network/operator/keys", data={"plan": "paid"}).status_code == 303


def test_an_operator_logs_in_by_the_secret_and_out_when_it_is_replaced(coordinator, client, secret):
    file = coordinator.data_dir / "operator.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in file.read_text()
    reply = client.post("/network/operator/login", data={"secret": secret})
    assert reply.status_code == 303
    cookie = reply.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/network"} <= {part.strip() for part in cookie.split(";")}
    page = client.get("/network/operator").text
    assert "Make a token" in page

    form = {"csrf": csrf_of(page), "plan": "paid", "label": "<i>me</i>"}
    made = client.post("/network/operator/keys", data=form)
    key = re.search(r'id="made">(bk-[^<]+)<', made.text)[1]
    assert client.get("/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200
    assert "<i>me</i>" not in made.text
    assert key not in coordinator.program.output

    coordinator.command("operator", "create")
    assert "Make a token" not in client.get("/network/operator").text
    assert coordinator.command("operator", "revoke") == {"revoked": True}
    assert client.post("/network/operator/login", data={"secret": secret}).status_code == 403
    assert brain_coord("operator", "revoke", "--data-dir", str(coordinator.data_dir)).returncode == 2


async def test_a_receipt_that_is_damaged_in_the_store_is_named_and_hides_no_other(coordinator, client, secret):
    headers = {"authorization": f"Bearer {coordinator.key()}"}
    body = {"model": "brain/mock", "messages": [{"role": "user", "content": "x"}]}
    async with RawNode(coordinator.url) as node, httpx.AsyncClient(base_url=coordinator.url, trust_env=False) as http:
        await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
        replies = [await http.post("/v1/chat/completions", json=body, headers=headers) for _ in range(2)]
    broken, whole = (reply.json()["brain"]["receipt"] for reply in replies)
    with contextlib.closing(sqlite3.connect(coordinator.data_dir / "coord.db")) as store, store:
        store.execute(
            "UPDATE receipts SET body = cast(x'7b95' || substr(body, 3) AS BLOB) WHERE receipt_id = ?", [broken]
        )

    client.post("/network/operator/login", data={"secret": secret})
    page = client.get("/network/operator")
    assert page.status_code == 200
    assert whole in page.text
    assert re.search(r"link \d+ of chain \w+ cannot be read", page.text)
    for path in (f"/v1/receipts/{broken}", f"/network/operator/receipts/{broken}"):
        reply = client.get(path, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "receipt_damaged")
        assert re.fullmatch(r"link \d+ of chain \w+ is damaged in the store", reply.json()["error"]["message"])
    page = client.get(f"/network/receipts/{broken}", headers={"accept": "text/html"})
    assert page.status_code == 500
    assert "is damaged in the store" in page.text


def test_a_form_from_elsewhere_changes_nothing(coordinator, client, secret):
    client.post("/network/operator/login", data={"secret": secret})
    csrf = csrf_of(client.get("/network/operator").text)
    before = coordinator.command("key", "list")
    for headers, form in (
        ({}, {}),
        ({}, {"csrf": "guess"}),
        ({}, {"csrf": "gueß"}),
        ({"origin": "https://evil.example"}, {"csrf": csrf}),
        ({"origin": "null"}, {"csrf": csrf}),
        ({"sec-fetch-site": "cross-site"}, {"csrf": csrf}),
        ({"sec-fetch-site": "same-site"}, {"csrf": csrf}),
    ):
        reply = client.post("/network/operator/keys", data={"plan": "paid", **form}, headers=headers)
        assert reply.status_code == 403, (headers, form)
    too_much = client.post("/network/operator/keys", data={"csrf": csrf, "label": "x" * 20_000})
    assert too_much.status_code == 413
    assert coordinator.command("key", "list") == before


def test_pages_work_under_a_path_prefix_and_a_stop_does_not_wait_for_those_who_look(tmp_path):
    with (
        CoordinatorProcess(tmp_path / "coord", "--open-join", "--root-path", "/brain") as running,
        httpx.Client(trust_env=False, timeout=30) as client,
    ):
        page = client.get(f"{running.url}/network")
        assert page.status_code == 200
        links = set(re.findall(r'(?:src|href|data-part)="(/[^"]*)"', page.text))
        assert links
        assert {link for link in links if not link.startswith("/brain/")} == set()
        with client.stream("GET", f"{running.url}/network/events") as stream:
            lines = stream.iter_lines()
            assert next(lines)
            running.program.send(15)
            assert list(lines) is not None  # it ends by itself
        assert running.program.wait(15) == 0


def assert_refs_lead_somewhere(document):
    for ref in re.findall(r'"\$ref": "#/([^"]*)"', json.dumps(document)):
        place = document
        for part in ref.split("/"):
            place = place[part.replace("~1", "/")]


def test_the_api_is_described_without_help_of_another_host(client):
    page = client.get("/docs").text
    document = client.get("/openapi.json").json()
    assert {*DIALECTS, "/v1/models", "/v1/compute/matmul"} <= set(document["paths"])
    for path, operations in document["paths"].items():
        assert f"<code>{path}</code>" in page
        for operation in operations.values():
            assert "422" not in operation["responses"]  # never sent: every error has the one shape
            assert "default" in operation["responses"]
    assert document["components"]["securitySchemes"]["key"]["name"] == "x-api-key"
    for generating in DIALECTS:
        assert document["paths"][generating]["post"]["security"] == document["paths"]["/v1/models"]["get"]["security"]
    assert_refs_lead_somewhere(document)
    assert "https://" not in page


BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def test_the_bare_address_leads_a_browser_to_the_network_and_tells_a_program_in_json(client):
    reply = client.get("/", headers=BROWSER)
    assert (reply.status_code, reply.headers["location"]) == (307, "/network")
    reply = client.get("/")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


def test_a_browser_gets_errors_as_pages_that_lead_back(client):
    for path, status in (
        ("/network/nowhere", 404),
        ("/netwrok", 404),
        ("/network/static/none.js", 404),
        ("/network/operator/login", 405),
        ("/network/history?minutes=0", 400),
    ):
        reply = client.get(path, headers=BROWSER)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert 'href="/network"' in reply.text
        assert "content-security-policy" in reply.headers
        assert client.get(path).json()["error"]["code"]
    assert client.get("/network/operator/login", headers=BROWSER).headers["allow"] == "POST"


def test_the_api_answers_a_browser_too_in_json(client):
    for path in ("/v1/nowhere", "/v1/nodes/N-1"):
        assert client.get(path, headers=BROWSER).json()["error"]["code"] == "not_found"


def test_behind_a_prefix_the_bare_address_leads_to_the_network_under_it(tmp_path):
    with (
        CoordinatorProcess(tmp_path / "coord", "--root-path", "/brain") as running,
        httpx.Client(trust_env=False) as client,
    ):
        assert running.url.endswith("/brain")
        for path in ("/", ""):
            assert client.get(f"{running.url}{path}", headers=BROWSER).headers["location"] == "/brain/network"
