"""CLOUD_GPU by URL, EXTERNAL_MODEL and BROWSER_NETWORK through the true servers, with scripted upstreams."""

import asyncio
import gzip
import json
import re

import pytest
from aiohttp import web

from tests.support.configured import Configured
from tests.support.eventually import eventually
from tests.support.fake_openai import FakeOpenAi, chat, cut, silence, status
from tests.support.ports import free_port
from tests.support.raw_node import RawNode

MODELS = ("plain", "packed")
SECRET = "UPSTREAM-TESTSECRET"
PRICED = {"prompt_usd_per_1m": 1.0, "completion_usd_per_1m": 10.0, "quality": 0.5, "probe_s": 0}


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory):
    env = {"FAR_KEY": SECRET, "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}
    with Configured(tmp_path_factory.mktemp("coord") / "data", env=env) as running:
        yield running


def brain_of(text: str) -> dict:
    events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(events[-1])["brain"]


def text_of(text: str) -> str:
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


async def test_an_own_server_answers_and_the_receipt_tells_class_model_and_price(coordinator):
    async with FakeOpenAi("own-model") as server:
        coordinator.reload(server.toml("cloud", "rack", **PRICED))
        reply = await coordinator.chat("own-model", max_tokens=100)
    assert reply.status_code == 200
    brain = reply.json()["brain"]
    assert (brain["class"], brain["target"], brain["node"], brain["model"]) == ("CLOUD_GPU", "rack", None, "own-model")
    assert brain["route"].startswith("CLOUD_GPU (AUTO): score ")
    assert brain["route"].endswith(" → rack with own-model")
    assert reply.headers["x-brain-target"] == "CLOUD_GPU"
    receipt = await coordinator.receipt(brain["receipt"])
    assert (receipt["class"], receipt["served_model"], receipt["privacy"]) == ("CLOUD_GPU", "own-model", "STANDARD")
    assert receipt["price"] == {
        "amount_usd": 0.000037,
        "prompt_usd_per_1m": 1.0,
        "completion_usd_per_1m": 10.0,
    }
    estimate = receipt["decision"]["class"]["snapshot"]["classes"]
    (cloud,) = [each for each in estimate if each["class"] == "CLOUD_GPU"]
    assert cloud["cost_usd"] == pytest.approx(0.001, rel=0.1)  # 100 tokens of answer, and a short prompt


@pytest.mark.parametrize("models", [["cheap"], {"cheap": "served-2026"}])
async def test_an_upstream_sees_no_other_model_than_the_one_that_was_routed(coordinator, models):
    body = b'{"model":"dear","messages":[{"role":"user","content":"x"}],"model":"cheap","Model":"dear"}'
    async with FakeOpenAi("cheap", "dear", "served-2026") as server, coordinator.http() as http:
        coordinator.reload(server.toml("external", "far", probe_s=0, models=models))
        assert (await http.post("/v1/chat/completions", content=body)).status_code == 200
    seen = json.loads(server.requests[0].body, object_pairs_hook=list)
    assert [value for name, value in seen if name.lower() == "model"] == [
        "served-2026" if type(models) is dict else "cheap"
    ]


async def test_a_model_map_changes_the_name_for_the_upstream_and_back_for_the_client(coordinator):
    async with FakeOpenAi("served-2026") as server:
        table = server.toml("external", "far", api_key_env="FAR_KEY", models={"asked": "served-2026"}, probe_s=0)
        coordinator.reload(table)
        whole = await coordinator.chat("asked", temperature=1e-7)
        streamed = await coordinator.chat("asked", stream=True)
    first, second = (json.loads(seen.body) for seen in server.requests)
    assert (first["model"], first["temperature"], second["model"]) == ("served-2026", 1e-7, "served-2026")
    assert whole.json()["model"] == "asked"
    assert whole.json()["brain"]["model"] == "served-2026"
    assert '"model":"served-2026","choices"' not in streamed.text
    assert '"model":"asked"' in streamed.text
    assert text_of(streamed.text) == "far away text "
    receipt = await coordinator.receipt(brain_of(streamed.text)["receipt"])
    assert (receipt["model"], receipt["served_model"], receipt["price"]) == ("asked", "served-2026", None)
    headers = server.requests[0].headers
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["Accept-Encoding"] == "identity"
    assert coordinator.secret not in str(headers)


async def test_the_models_of_upstreams_are_listed_with_their_class(coordinator):
    async with FakeOpenAi("listed-a", "listed-b") as server:
        coordinator.reload(server.toml("external", "lister", probe_s=0))
        async with coordinator.http() as http:
            listed = {each["id"]: each["brain"]["classes"] for each in (await http.get("/v1/models")).json()["data"]}
            wrong = await http.post("/v1/chat/completions", json={"model": "listed-x", "messages": [{}]})
    assert listed["listed-a"] == ["EXTERNAL_MODEL"]
    assert wrong.status_code == 404
    assert "listed-a" in wrong.json()["error"]["message"]


async def test_embeddings_pass_where_an_upstream_offers_the_route(coordinator):
    async with FakeOpenAi("vectors") as server:
        coordinator.reload(
            server.toml("external", "embedder", routes=["/v1/embeddings"], prompt_usd_per_1m=2.0, probe_s=0)
        )
        async with coordinator.http() as http:
            reply = await http.post("/v1/embeddings", json={"model": "vectors", "input": "x"})
            refused = await http.post(
                "/v1/chat/completions", json={"model": "vectors", "messages": [{"role": "user", "content": "x"}]}
            )
    assert reply.json()["data"][0]["embedding"] == [0.5, 0.25]
    receipt = await coordinator.receipt(reply.json()["brain"]["receipt"])
    assert receipt["price"]["amount_usd"] == pytest.approx(7 * 2 / 1e6)
    assert refused.status_code == 404


async def test_brain_auto_takes_the_best_model_of_an_upstream_for_the_mode(coordinator):
    models = {
        "cheap": {"served": "cheap", "prompt_usd_per_1m": 0.1, "completion_usd_per_1m": 0.1, "quality": 0.2},
        "good": {"served": "good", "prompt_usd_per_1m": 5.0, "completion_usd_per_1m": 20.0, "quality": 0.9},
    }
    async with FakeOpenAi("cheap", "good") as server:
        coordinator.reload(server.toml("external", "both", models=models, probe_s=0))
        served = {
            mode: (await coordinator.chat("brain/auto", mode=mode)).json()["brain"]["model"]
            for mode in ("CHEAP", "QUALITY")
        }
    assert served == {"CHEAP": "cheap", "QUALITY": "good"}
    assert {json.loads(seen.body)["model"] for seen in server.requests} == {"cheap", "good"}


async def test_a_price_that_is_too_high_excludes_and_an_unknown_one_does_not(coordinator):
    async with FakeOpenAi("dear") as dear, FakeOpenAi("unknown") as unknown:
        coordinator.reload(dear.toml("external", "dear", **PRICED), unknown.toml("external", "unpriced", probe_s=0))
        refused = await coordinator.chat("dear", max_cost_usd=0.0001)
        allowed = await coordinator.chat("unknown", max_cost_usd=0.0001)
        over_budget = await coordinator.chat("dear", max_ask_usd_per_1m=5)
    assert refused.status_code == 503
    assert "over_max_cost" in refused.json()["error"]["message"]
    assert allowed.status_code == 200
    assert over_budget.status_code == 503
    assert over_budget.json()["error"]["message"] == "EXTERNAL_MODEL: dear price above budget"
    assert dear.calls == 0


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_an_upstream_that_refuses_our_key_or_name_is_misconfigured_and_the_next_one_answers(coordinator, code):
    async with FakeOpenAi("m", script=status(code, SECRET)) as wrong, FakeOpenAi("m") as right:
        coordinator.reload(
            wrong.toml("external", f"wrong-{code}", probe_s=0), right.toml("external", f"right-{code}", probe_s=0)
        )
        reply = await coordinator.chat("m")
        again = await coordinator.chat("m")
        seen = await coordinator.target(f"wrong-{code}")
        coordinator.reload(wrong.toml("external", f"wrong-{code}", probe_s=0))
        alone = await coordinator.chat("m")
    assert reply.status_code == 200
    receipt = await coordinator.receipt(reply.json()["brain"]["receipt"])
    assert [(each["target"], each["cause"]) for each in receipt["attempts"]] == [
        (f"wrong-{code}", f"status_{code}"),
        (f"right-{code}", None),
    ]
    assert again.json()["brain"]["attempts"] == 1  # the one that refused comes last now
    if code == 404:
        assert seen["not_found"] == ["m on /v1/chat/completions"]
    else:
        assert (seen["state"], seen["reason"]) == ("last", f"misconfigured: answered {code}")
    assert alone.status_code == 502  # never the client's own 401
    assert alone.json()["error"]["message"].startswith("what serves this model refuses the coordinator")
    assert alone.headers["x-should-retry"] == "false"
    assert SECRET not in alone.text


@pytest.mark.case("D-10")
async def test_no_key_of_an_upstream_is_in_logs_errors_or_receipts(coordinator):
    async with FakeOpenAi("m", script=status(401, f"wrong key {SECRET}")) as server:
        coordinator.reload(server.toml("external", "keyed", api_key_env="FAR_KEY"))
        reply = await coordinator.chat("m")
        async with coordinator.http() as http:
            receipts = (await http.get("/v1/receipts")).text
        shown = json.dumps(coordinator.command("targets"))
    assert server.requests[-1].headers["Authorization"].endswith(SECRET)
    for text in (reply.text, receipts, shown, coordinator.program.output):
        assert SECRET not in text


async def test_a_dead_upstream_is_passed_over_visibly_and_comes_back_when_it_does(coordinator):
    rules = "[breaker]\nfaults = 2\nfirst_open_s = 6.0\n"  # long enough to be seen, and less than a request waits
    async with FakeOpenAi("m", port=free_port()) as server:
        table = server.toml("external", "dying", probe_s=0)
    async with FakeOpenAi("m") as other:
        coordinator.reload(rules, table, other.toml("external", "steady", probe_s=0))
        for _ in range(2):
            reply = await coordinator.chat("m")
            causes = [
                each["cause"] for each in (await coordinator.receipt(reply.json()["brain"]["receipt"]))["attempts"]
            ]
            assert causes == ["connection_refused", None]
        brain = (await coordinator.chat("m")).json()["brain"]
    (over,) = brain["passed_over"]
    assert over["target"] == "dying"
    assert over["reason"].startswith("paused after 2 faults (connection_refused), next try in ")
    assert "[passed over: dying paused after 2 faults" in brain["route"]
    assert brain["attempts"] == 1
    async with FakeOpenAi("m", port=server.port) as back:
        coordinator.reload(rules, table)
        reply = await coordinator.chat("m")  # the only target: the request waits for the end of the pause
        assert reply.status_code == 200
        assert back.calls == 1
        assert (await coordinator.target("dying"))["breaker"] == "closed"


async def test_an_idle_upstream_that_went_away_is_known_before_a_request_finds_out(coordinator):
    async with FakeOpenAi("m", port=free_port()) as server:
        table = server.toml("external", "idle", probe_s=0.2)
        coordinator.reload("[breaker]\nfirst_open_s = 1.0\nmax_open_s = 1.0\n", table)
        await coordinator.until_target("idle", state="ok")
    seen = await coordinator.until_target("idle", breaker="open")
    # By then it may have been tried once more, in vain.
    assert re.match(r"paused after [3-9]\d* faults \(connection_refused\)", seen["reason"])
    async with FakeOpenAi("m", port=server.port) as back:
        await coordinator.until_target("idle", state="ok")
        assert back.calls == 0


async def test_a_wrong_name_shows_up_in_the_list_of_models(coordinator):
    async with FakeOpenAi("real-name") as server:
        coordinator.reload(server.toml("external", "typo", models={"m": "reel-name"}, probe_s=0.2))
        await coordinator.until_target("typo", not_listed=["reel-name"])


@pytest.mark.case("C-08")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_work_at_the_upstream(coordinator, stream):
    async with FakeOpenAi("m", script=silence) as server:
        name = f"left-{stream}".lower()
        coordinator.reload(server.toml("external", name, probe_s=0))
        asking = asyncio.create_task(coordinator.chat("m", stream=stream))
        await eventually(lambda: server.running == 1)
        asking.cancel()
        await eventually(lambda: server.hung_up == 1)
        await coordinator.until_target(name, active=0, breaker="closed")


@pytest.mark.case("E-06")
async def test_after_the_first_output_no_other_upstream_is_asked(coordinator):
    arrived = asyncio.Event()
    async with FakeOpenAi("m", script=cut(3, arrived)) as breaking, FakeOpenAi("m") as healthy:
        coordinator.reload(breaking.toml("external", "breaks", probe_s=0), healthy.toml("external", "heals", probe_s=0))
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
        async with coordinator.http() as http, http.stream("POST", "/v1/chat/completions", json=body) as reply:
            text = ""
            async for piece in reply.aiter_text():
                text += piece
                if "w2" in text:
                    arrived.set()
        assert healthy.calls == 0
        assert '"code":"incomplete"' in text
        breaking.script = cut(0)
        whole = await coordinator.chat("m", stream=True)
    assert text_of(whole.text) == "far away text "
    attempts = (await coordinator.receipt(brain_of(whole.text)["receipt"]))["attempts"]
    assert [each["cause"] for each in attempts] == ["connection_lost", None]


async def test_a_connection_that_was_closed_while_idle_costs_one_safe_retry(coordinator):
    accepted: list[int] = []
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(0)
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            requests.append(await reader.readexactly(size))
            accepted[-1] += 1
            if accepted[-1] == 2:  # as if it had closed the idle connection a moment before the request came
                writer.transport.abort()
                return
            body = json.dumps({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(body)
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    coordinator.reload(f'[[external]]\nname = "racing"\nurl = "{url}"\nmodels = ["m"]\nprobe_s = 0\n')
    replies = [await coordinator.chat("m") for _ in range(2)]
    server.close()
    assert [reply.status_code for reply in replies] == [200, 200]
    assert accepted == [2, 1]
    assert len(requests) == 3
    attempts = (await coordinator.receipt(replies[1].json()["brain"]["receipt"]))["attempts"]
    assert [each["cause"] for each in attempts] == [None]
    assert (await coordinator.target("racing"))["active"] == 0


async def test_a_fresh_connection_that_breaks_is_not_tried_again(coordinator):
    async with FakeOpenAi("m", script=cut()) as server:
        coordinator.reload(server.toml("external", "fresh", probe_s=0))
        reply = await coordinator.chat("m")
    assert reply.status_code == 502
    assert server.calls == 1
    assert reply.json()["brain"]["attempts"][0]["cause"] == "connection_lost"


async def test_redirects_are_not_followed_and_compressed_answers_not_guessed_at(coordinator):
    async with FakeOpenAi("m", script=status(307, location="http://127.0.0.1:9/")) as server:
        coordinator.reload(server.toml("external", "moved", probe_s=0))
        causes = [(await coordinator.chat("m")).json()["brain"]["attempts"][0]["cause"]]
        for encoding in ("br", "gzip"):  # one that is not known, and one that it is not
            server.script = status(200, Content_Encoding=encoding)
            causes.append((await coordinator.chat("m")).json()["brain"]["attempts"][0]["cause"])
    assert causes == ["redirected", "protocol", "protocol"]


async def test_an_answer_that_was_compressed_unasked_reaches_the_client_as_it_was(coordinator):
    async with FakeOpenAi("plain") as plain, FakeOpenAi("packed") as server:
        server.packs = True
        coordinator.reload(plain.toml("external", "plain", probe_s=0), server.toml("external", "packed", probe_s=0))
        replies = [await coordinator.chat(model, stream=stream) for stream in (False, True) for model in MODELS]
        server.script = status(400, "no such tool")
        refused = await coordinator.chat("packed")
    for asked, unasked in (replies[:2], replies[2:]):
        assert (asked.status_code, unasked.status_code) == (200, 200)
        assert "content-encoding" not in unasked.headers
    assert replies[1].json()["choices"] == replies[0].json()["choices"]
    assert text_of(replies[3].text) == text_of(replies[2].text) == "far away text "
    ids = [replies[1].json()["brain"]["receipt"], brain_of(replies[3].text)["receipt"]]
    assert [(await coordinator.receipt(each))["tokens"]["completion_billed"] for each in ids] == [3, 3]
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "no such tool")


async def test_a_bomb_is_not_unpacked_further_than_an_answer_may_be_large(coordinator):
    body = gzip.compress(b'{"choices": [{"message": {"content": "' + bytes(100 << 20) + b'"}}]}')
    assert len(body) < 200_000

    async def bomb(request, _):
        return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    async with FakeOpenAi("m", script=bomb) as server:
        coordinator.reload(server.toml("external", "bomb", probe_s=0))
        reply = await coordinator.chat("m")
    assert reply.status_code == 502
    assert reply.json()["brain"]["attempts"][0]["cause"] == "too_large"


async def test_the_headers_and_the_query_of_anthropics_form_reach_an_upstream_that_speaks_it(coordinator):
    async def count(request, _):
        asked.append((request.path_qs, dict(request.headers)))
        return web.json_response({"input_tokens": 9})

    asked: list[tuple[str, dict[str, str]]] = []
    body = {"model": "claude", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    async with FakeOpenAi("claude", script=count) as server:
        coordinator.reload(
            server.toml("external", "far", auth="x-api-key", api_key_env="FAR_KEY", prompt_usd_per_1m=3.0, probe_s=0)
        )
        async with coordinator.http() as http:
            betas = [("anthropic-beta", "a,b"), ("Anthropic-Beta", "c")]
            headers = [("anthropic-version", "2024-01-01"), *betas, ("x-secret", "s")]
            reply = await http.post("/v1/messages/count_tokens?beta=true", json=body, headers=headers)
            await http.post("/v1/messages/count_tokens", json=body)
            await http.post("/v1/embeddings?beta=true", json={"model": "claude", "input": "x"}, headers=headers)
    assert reply.json()["input_tokens"] == 9
    receipt = await coordinator.receipt(reply.json()["brain"]["receipt"])
    assert (receipt["price"]["amount_usd"], receipt["tokens"]["completion_billed"]) == (0.0, None)
    (first, sent), (second, default), (third, other) = asked
    assert (first, second, third) == (
        "/v1/messages/count_tokens?beta=true",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
    )
    assert (sent["anthropic-version"], sent["anthropic-beta"]) == ("2024-01-01", "a,b, c")
    assert (sent["x-api-key"], sent.get("Authorization"), sent.get("x-secret")) == (SECRET, None, None)
    assert (default["anthropic-version"], default.get("anthropic-beta")) == ("2023-06-01", None)
    assert "anthropic-beta" not in other


async def test_more_requests_than_slots_wait_their_turn(coordinator):
    release = asyncio.Event()

    async def held(request, body):
        await release.wait()
        return await chat()(request, body)

    async with FakeOpenAi("m", script=held) as server:
        coordinator.reload(server.toml("cloud", "narrow", slots=2, probe_s=0))
        asking = [asyncio.create_task(coordinator.chat("m", stream=True)) for _ in range(8)]
        await coordinator.until_metric("brain_requests_waiting", 6)
        release.set()
        replies = await asyncio.gather(*asking)
    assert [text_of(reply.text) for reply in replies] == ["far away text "] * 8
    queued = [(await coordinator.receipt(brain_of(reply.text)["receipt"]))["timings"]["queued_ms"] for reply in replies]
    assert sum(each > 0 for each in queued) >= 6
    assert (await coordinator.target("narrow"))["active"] == 0


async def test_when_no_slot_comes_free_the_client_is_told_after_the_queue_time(coordinator):
    async with FakeOpenAi("m", script=silence) as server:
        coordinator.reload("[queue]\nwait_s = 0.3\n", server.toml("cloud", "full", slots=1, probe_s=0))
        holding = asyncio.create_task(coordinator.chat("m"))
        await eventually(lambda: server.running == 1)
        reply = await coordinator.chat("m")
        holding.cancel()
    assert reply.status_code == 503
    assert reply.headers["retry-after"]
    assert reply.json()["error"]["message"] == "CLOUD_GPU: full no free slot"


async def test_an_own_node_goes_before_an_own_server_and_the_server_is_its_fallback(coordinator):
    token = coordinator.token("--operator")
    async with FakeOpenAi("brain/mock") as server, RawNode(coordinator.url, token=token) as node:
        coordinator.reload(server.toml("cloud", "behind", probe_s=0))
        await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
        first = await coordinator.chat("brain/mock", privacy="PRIVATE")

        async def dies(job):
            await job.drop()

        node.script = dies
        second = await coordinator.chat("brain/mock", privacy="PRIVATE")
        await node.leave()
        third = await coordinator.chat("brain/mock", privacy="PRIVATE")
    assert first.json()["brain"]["node"] == node.node_id
    assert first.json()["brain"]["class"] == "CLOUD_GPU"
    assert (second.json()["brain"]["target"], second.json()["brain"]["class"]) == ("behind", "CLOUD_GPU")
    attempts = (await coordinator.receipt(second.json()["brain"]["receipt"]))["attempts"]
    assert [(each["class"], each["cause"]) for each in attempts] == [("CLOUD_GPU", "node_lost"), ("CLOUD_GPU", None)]
    assert third.json()["brain"]["target"] == "behind"


async def test_private_work_stays_with_the_operator_and_standard_work_off_strangers_nodes(coordinator):
    model = "huggingfacetb/smollm2-135m-instruct"
    async with FakeOpenAi(model) as far, RawNode(coordinator.url, models=[model]) as node:
        coordinator.reload(far.toml("external", "third-party", probe_s=0))
        await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
        node.jobs.clear()
        private = await coordinator.chat(model, privacy="PRIVATE")
        standard = await coordinator.chat(model, privacy="STANDARD")
        assert node.jobs == []
        public = await coordinator.chat(model, mode="COMMUNITY")
    assert (private.status_code, private.json()["error"]["code"]) == (400, "privacy_conflict")
    assert standard.json()["brain"]["class"] == "EXTERNAL_MODEL"
    assert far.calls == 1
    assert public.status_code == 200


async def test_the_browser_network_says_that_no_tab_is_online(coordinator):
    coordinator.reload()
    reply = await coordinator.chat("brain/auto", mode="BROWSER_ONLY", privacy="PUBLIC")
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == "BROWSER_NETWORK: no tab online"
    exclusions = reply.json()["brain"]["decision"]["class"]["exclusions"]
    assert exclusions["BROWSER_NETWORK"] == ["unavailable"]


async def test_a_pinned_node_is_never_replaced_by_an_upstream(coordinator):
    async with FakeOpenAi("brain/mock") as server:
        coordinator.reload(server.toml("external", "instead", probe_s=0))
        reply = await coordinator.chat("brain/mock", node="N-0123456789ABCDEF")
    assert reply.status_code == 503
    assert "N-0123456789ABCDEF has not joined" in reply.json()["error"]["message"]
    assert server.calls == 0
