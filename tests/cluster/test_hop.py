"""A request at one coordinator for a node that another holds: one hop, with real processes, PostgreSQL and Redis."""

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import signal
from time import monotonic

import httpx
import pytest
from redis.asyncio import Redis

from brain_coord.cluster.secret import ClusterSecret
from brain_node.contract.identity import Identity
from tests.cluster.conftest import QUIET
from tests.support.cluster import Cluster
from tests.support.coordinator import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawJob, RawNode, answer, chunk, usage
from tests.support.tcp_relay import TcpRelay

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

BODY = {"model": "brain/mock", "messages": [{"role": "user", "content": "hello"}], "stream": True}
CHAT = "/v1/chat/completions"


class Held:
    """A script that answers benchmarks at once, and all others when it is told to go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.reached = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, job: RawJob) -> None:
        if job.request.get("ignore_eos"):
            await answer(job)
            return
        await job.accept()
        await job.head()
        await job.event(chunk("begun "))
        self.reached.set()
        cancelled = asyncio.ensure_future(job.cancelled.wait())
        going_on = asyncio.ensure_future(self.go_on.wait())
        await asyncio.wait((cancelled, going_on), return_when=asyncio.FIRST_COMPLETED)
        cancelled.cancel(), going_on.cancel()
        if job.cancelled.is_set():
            await job.end(ok=False, cause="cancelled")
            self.cancelled.set()
            return
        await job.event(chunk("done"))
        await job.event(chunk(finish="stop"))
        await job.event(usage(2))
        await job.send(b"data: [DONE]\n\n")
        await job.end()


async def measured(cluster: Cluster, count: int = 1, **members) -> None:
    await cluster.off_loop(cluster.wait_nodes, count, basis="coordinator-timed", state="ONLINE", **members)


@contextlib.asynccontextmanager
async def node_at(cluster: Cluster, name: str, **options):
    """A measured node at one coordinator, the only one that is connected."""
    async with RawNode(cluster[name].url, **options) as node:
        await measured(cluster)
        yield node
    await cluster.off_loop(cluster.wait_nodes, 0, state="ONLINE")


async def ask(url: str, key: str, **more) -> RawClient:
    async with RawClient(url, key) as http:
        await http.post(CHAT, {**BODY, **more})
        await http.answer()
    return http


async def receipt_of(url: str, key: str, http: RawClient) -> dict:
    async with httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {key}"}) as client:
        lines = (await client.get(f"{url}/v1/receipts")).text.splitlines()
    bodies = [json.loads(line)["body"] for line in lines]
    return next(body for body in bodies if body["request_id"] == http.reply.headers["x-request-id"])


async def test_a_request_is_answered_through_the_coordinator_that_holds_the_node(pair, key):
    async with node_at(pair, "b") as node:
        for stream in (True, False):
            reply = (await ask(pair["a"].url, key, stream=stream)).reply
            assert reply.status == 200, reply.body
            text = reply.text if stream else reply.json["choices"][0]["message"]["content"]
            assert text == "one two three "
        await pair.off_loop(pair.wait_nodes, 1, node_id=node.node_id, active=0, outcomes=2)
        seen = [
            next(row for row in await pair.off_loop(each.nodes) if row["node_id"] == node.node_id)
            for each in pair.running.values()
        ]
        assert seen[0] == seen[1], "both coordinators tell the same of the node"
        assert seen[0]["measured"]["first_output_ms"]["brain/mock"]["samples"] == 1
        shown = await pair.off_loop(pair["a"].command, "nodes", "show", node.node_id)
        assert shown["linked_at"] == "b"
        assert [event["result"] for event in shown["score"]["events"]] == ["completed"] * 2


async def test_status_shows_every_coordinator_with_the_nodes_it_holds(pair):
    async with node_at(pair, "b"):
        seen = await pair.off_loop(pair.status, "a")
        assert (seen["state"], seen["name"], seen["replicas"]) == ("together", "a", ["a", "b"])
        rows = {row["name"]: row for row in seen["coordinators"]}
        assert {name: row["nodes"] for name, row in rows.items()} == {"a": 0, "b": 1}
        assert rows["b"]["address"] == pair["b"].url
        shown = await pair.off_loop(pair.command, "a", "status")
        assert "cluster: together; limits hold across the cluster" in shown
        assert "this one" in shown


async def test_a_client_that_leaves_ends_the_job_behind_the_hop(pair, key):
    script = Held()
    async with node_at(pair, "b", script=script):
        async with RawClient(pair["a"].url, key) as http:
            await http.post(CHAT, BODY)
            await http.read_until(b"begun")
            http.reset()
        await asyncio.wait_for(script.cancelled.wait(), 30)
        await pair.off_loop(pair.wait_nodes, 1, active=0, state="ONLINE")


async def test_a_node_that_is_lost_behind_the_hop_ends_the_stream_with_one_clean_error(pair, key):
    script = Held()
    async with node_at(pair, "b", script=script) as node:
        async with RawClient(pair["a"].url, key) as http:
            await http.post(CHAT, BODY)
            await http.read_until(b"begun")
            await node.leave()
            reply = await http.answer()
        assert reply.whole
        assert [event["error"]["code"] for event in reply.data if "error" in event] == ["incomplete"]
        body = await receipt_of(pair["a"].url, key, http)
        assert body["attempts"][0]["cause"] == "node_lost"


async def test_a_client_that_does_not_read_holds_back_the_node_behind_the_hop(pair, key):
    sent = 0

    async def flood(job: RawJob) -> None:
        nonlocal sent
        if job.request.get("ignore_eos"):
            await answer(job)
            return
        await job.accept()
        await job.head()
        while not job.cancelled.is_set():
            await job.event(chunk("x" * 60_000))
            sent += 60_000

    async with node_at(pair, "b", script=flood), RawClient(pair["a"].url, key, receive_buffer=4096) as http:
        await http.post(CHAT, BODY)
        await http.read_until(b"xxx")
        before, still = -1, 0
        while still < 10:  # until nothing more goes out for a while
            await asyncio.sleep(0.2)
            still = still + 1 if sent == before else 0
            before = sent
        assert sent < 32 * 2**20, "what nobody reads piles up somewhere"
        http.reset()


async def test_an_engines_own_refusal_passes_the_hop_as_it_is(pair, key):
    async def refuse(job: RawJob) -> None:
        if job.request.get("ignore_eos"):
            await answer(job)
            return
        await job.accept()
        await job.head(400, "application/json")
        await job.send(b'{"error": {"message": "too long", "type": "t", "param": null, "code": "context"}}')
        await job.end()

    async with node_at(pair, "b", script=refuse):
        http = await ask(pair["a"].url, key)
        assert http.reply.status == 400
        assert http.reply.json["error"]["message"] == "too long"


async def test_a_large_body_passes_the_hop_whole(pair, key):
    text = "y" * 5_000_000
    got = []

    async def count(job: RawJob) -> None:
        got.append(len(job.body))
        await answer(job)

    async with node_at(pair, "b", script=count):
        http = await ask(pair["a"].url, key, messages=[{"role": "user", "content": text}])
        assert http.reply.status == 200
    assert got[-1] > len(text)


@pytest.mark.parametrize("path", ["/cluster/v1/job", "/cluster/v1/event", "/cluster/v1/other"])
async def test_nobody_without_the_secret_gets_through_the_hop(pair, path):
    async with httpx.AsyncClient(trust_env=False) as client:
        for headers in ({}, {"x-brain-cluster": "e30=.AAAA"}, {"authorization": f"Bearer {pair.secret}"}):
            reply = await client.post(pair["b"].url + path, content=b"{}", headers=headers)
            assert reply.status_code == 403, reply.text
    assert pair.secret not in pair["b"].program.output


async def heard_run(cluster: Cluster, name: str) -> str:
    """Which process a coordinator is, as its beats say; its clock is ours, on one machine."""
    secret = ClusterSecret(cluster.secret)
    async with Redis.from_url(cluster.env["BRAIN_COORD_CLUSTER_URL"]) as redis, redis.pubsub() as listener:
        await listener.subscribe(secret.prefix + "messages")
        async for message in listener.listen():
            if message["type"] == "message" and (said := json.loads(secret.unseal(message["data"])))["from"] == name:
                return str(said["run"])
    raise AssertionError


async def test_a_proof_holds_once_for_its_body_and_a_job_of_another_version_is_declined(pair):
    path, body = "/cluster/v1/job", b"{}"

    run = await heard_run(pair, "b")

    def proof(**more: object) -> dict[str, str]:
        digest = hashlib.sha256(body).hexdigest()
        claims = {"from": "z", "to": "b", "run": run, "path": path, "at": monotonic(), "nonce": secrets.token_hex(8)}
        return {"x-brain-cluster": ClusterSecret(pair.secret).prove({"sha256": digest, **claims, **more})}

    async with httpx.AsyncClient(trust_env=False, base_url=pair["b"].url) as client:
        once = proof()
        declined = await client.post(path, content=body, headers=once)
        assert (declined.status_code, declined.json()["cause"]) == (404, "replica_away")
        assert (await client.post(path, content=body, headers=once)).status_code == 403
        assert (await client.post(path, content=b"other", headers=proof())).status_code == 403
        assert (await client.post(path, content=body, headers=proof(to="a"))).status_code == 403
        job = {"node": "N-0", "epoch": 1, "class": "NATIVE_NETWORK", "job": "j", "model": "m", "deadline_s": 1.0}
        moved = await client.post(path, content=body, headers=proof(route=CHAT, **job))
        assert (moved.status_code, moved.json()["cause"], moved.json()["ran"]) == (409, "no_free_slot", False)


async def test_a_node_is_linked_at_one_coordinator_and_the_newest_session_wins(pair, key):
    identity = Identity.generate()
    async with node_at(pair, "a", identity=identity) as first, RawNode(pair["b"].url, identity=identity) as second:
        assert first.link is not None
        await asyncio.wait_for(first.link.wait_closed(), 30)
        assert first.link.close_reason == "superseded by a newer session of this node"
        await measured(pair)
        for name in ("a", "b"):
            http = await ask(pair[name].url, key)
            assert http.reply.text == "one two three "
        assert len([job for job in second.jobs if not job.request.get("ignore_eos")]) == 2
        assert second.link is not None
        assert second.link.state.name == "OPEN"


async def test_a_slot_that_lands_at_another_coordinator_is_passed_on_to_the_links_own(pair, key):
    class Stray(RawNode):
        async def open_slot(self) -> None:
            at, self.url = self.url, pair["a"].url.replace("http", "ws", 1)
            try:
                await super().open_slot()
            finally:
                self.url = at

    node = Stray(pair["b"].url, slots=2)
    async with node:
        await measured(pair)
        for name in ("a", "b"):
            assert (await ask(pair[name].url, key)).reply.text == "one two three "
        script = node.script = Held()
        async with RawClient(pair["b"].url, key) as http:
            await http.post(CHAT, BODY)
            await http.read_until(b"begun")
            http.reset()
        await asyncio.wait_for(script.cancelled.wait(), 30)
    await pair.off_loop(pair.wait_nodes, 0, state="ONLINE")


async def test_a_slot_with_a_ticket_of_nobody_is_refused(pair):
    async with httpx.AsyncClient(trust_env=False) as client:
        upgrade = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "MDEyMzQ1Njc4OWFiY2RlZg==",
        }
        for ticket in ("b~nonsense", "zz~nonsense", "nonsense"):
            headers = {**upgrade, "authorization": f"Bearer {ticket}"}
            reply = await client.get(pair["a"].url + "/node/v1/slot", headers=headers)
            assert reply.status_code == 401


async def test_operators_decide_at_any_coordinator(pair):
    async with node_at(pair, "b") as node:
        a = pair["a"]
        await pair.off_loop(a.command, "nodes", "trust", node.node_id)
        await pair.off_loop(pair.wait_nodes, 1, node_id=node.node_id, trusted=True)
        await pair.off_loop(a.command, "nodes", "drain", node.node_id)
        await pair.off_loop(pair.wait_nodes, 1, node_id=node.node_id, state="DRAINING")
        told = lambda: any(message["type"] == "drain" for message in node.received)  # noqa: E731
        await pair.off_loop(eventually, told)
        await pair.off_loop(a.command, "nodes", "undrain", node.node_id)
        assert node.link is not None
        await asyncio.wait_for(node.link.wait_closed(), 30)
        await node.leave()
        await node.join()
        await pair.off_loop(pair.wait_nodes, 1, node_id=node.node_id, state="ONLINE")
        await pair.off_loop(a.command, "nodes", "ban", node.node_id, "--reason", "enough")
        await asyncio.wait_for(node.link.wait_closed(), 30)
        await pair.off_loop(pair.wait_nodes, 1, node_id=node.node_id, state="OFFLINE")
        for each in ("a", "b"):
            again = RawNode(pair[each].url, identity=node.identity)
            assert (await again.join())["code"] == "banned"
            await again.leave()


async def test_keys_and_tokens_made_at_one_coordinator_hold_at_all(pair):
    key = await pair.off_loop(pair["a"].key)
    key_id = (await pair.off_loop(pair["a"].command, "key", "list"))[-1]["id"]

    def status() -> int:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.get(pair["b"].url + "/v1/models", headers=headers, trust_env=False).status_code

    assert await pair.off_loop(status) == 200
    await pair.off_loop(pair["a"].command, "key", "revoke", key_id)
    await pair.off_loop(eventually, lambda: status() == 401)


async def test_a_key_has_its_requests_of_a_minute_once_not_once_at_each_coordinator(pair):
    key = await pair.off_loop(pair["a"].key)
    began = monotonic()
    statuses = [(await ask(pair[name].url, key)).reply.status for _ in range(6) for name in ("a", "b")]
    assert set(statuses) == {429, 503}, "no node is linked, so what is admitted ends with 503"
    refilled = (monotonic() - began) * 5 / 60
    assert 5 <= statuses.count(503) <= 5 + refilled


async def test_the_holder_has_the_last_word_on_a_free_slot(tmp_path, postgres, redis):
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a", "b"), more=QUIET, ttl_s=60.0) as two:
        await two.off_loop(two.wait_together)
        key = await two.off_loop(two["a"].key)
        script = Held()
        async with RawNode(two["b"].url, slots=1, script=script):
            await measured(two)
            redis.freeze()  # from now on one coordinator knows nothing of what the other does
            async with RawClient(two["b"].url, key) as first, RawClient(two["a"].url, key) as second:
                await first.post(CHAT, BODY)
                await first.read_until(b"begun")
                waiting = asyncio.create_task(second.post(CHAT, BODY))
                await asyncio.sleep(4.0)  # longer than Redis is waited for
                script.go_on.set()
                redis.thaw()
                await waiting
                replies = [await first.answer(), await second.answer()]
            assert [reply.text for reply in replies] == ["begun done"] * 2
            body = await receipt_of(two["a"].url, key, second)
            causes = [attempt["cause"] for attempt in body["attempts"]]
            assert causes[-1] is None
            assert set(causes[:-1]) <= {"no_free_slot"}
            assert body["outcome"] == "completed"


async def test_a_body_that_the_holder_does_not_take_is_not_given_to_one_of_its_nodes_after_the_other(
    tmp_path, postgres, redis
):
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a", "b"), more=QUIET) as cluster:
        with (cluster["b"].data_dir / "config.toml").open("a") as config:
            config.write("[limits]\nbody_mib = 1\n")
        assert await cluster.off_loop(cluster["b"].program.stop) == 0
        await cluster.off_loop(cluster.start, "b")
        await cluster.off_loop(cluster.wait_together)
        key = await cluster.off_loop(cluster["a"].key, "paid")
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(RawNode(cluster["b"].url))
            await measured(cluster, 4)
            http = await ask(cluster["a"].url, key, messages=[{"role": "user", "content": "y" * 2_000_000}])
            assert (http.reply.status, http.reply.json["error"]["code"]) == (502, "target_failed")
            body = await receipt_of(cluster["a"].url, key, http)
            assert [(each["cause"], each["blamed"]) for each in body["attempts"]] == [("too_large", False)] * 3


async def test_streams_through_the_hop_outlive_redis(tmp_path, postgres, redis):
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a", "b"), more=QUIET, ttl_s=2.0) as two:
        await two.off_loop(two.wait_together)
        key = await two.off_loop(two["a"].key)
        script = Held()
        async with RawNode(two["b"].url, script=script):
            await measured(two)
            async with RawClient(two["a"].url, key) as http:
                await http.post(CHAT, BODY)
                await http.read_until(b"begun")
                redis.kill()
                await two.off_loop(two.wait_state, "alone")
                ready = await two.off_loop(two.ready, "a")
                assert ready["ready"] is True
                assert ready["cluster"]["state"] == "alone"
                assert ready["cluster"]["reason"]
                await two.off_loop(two["a"].wait_for_node, state="OFFLINE")
                script.go_on.set()
                reply = await http.answer()
            assert reply.text == "begun done"
            async with httpx.AsyncClient(trust_env=False) as client:
                assert "\nbrain_cluster_alone 1.0" in (await client.get(f"{two['a'].url}/metrics")).text
            redis.start()
            await two.off_loop(two.wait_together)
            await measured(two)
            assert (await ask(two["a"].url, key)).reply.text == "begun done"
        assert "alone: Redis is away" in two["a"].program.output


async def test_a_coordinator_that_alone_lost_redis_goes_on_with_what_it_streams_for_others(tmp_path, postgres, redis):
    async with TcpRelay(redis.port) as relay:
        with Cluster(tmp_path, postgres.create_database(), redis.url, ("a",), more=QUIET, ttl_s=2.0) as two:
            await two.off_loop(two.start, "b", f"redis://127.0.0.1:{relay.port}/0")
            await two.off_loop(two.wait_together)
            key = await two.off_loop(two["a"].key)
            script = Held()
            async with RawNode(two["b"].url, script=script):
                await measured(two)
                async with RawClient(two["a"].url, key) as http:
                    await http.post(CHAT, BODY)
                    await http.read_until(b"begun")
                    await relay.__aexit__()
                    await two.off_loop(two["a"].program.wait_for, "a coordinator answers, and is not heard over Redis")
                    assert (await two.off_loop(two.health, "b"))["state"] == "alone"
                    assert (await two.off_loop(two.health, "a"))["replicas"] == ["a"]
                    script.go_on.set()
                    reply = await http.answer()
                assert reply.text == "begun done"
                body = await receipt_of(two["a"].url, key, http)
                assert (body["outcome"], body["via"]) == ("completed", "b")


async def test_a_coordinator_that_stands_still_is_given_up(tmp_path, postgres, redis):
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a", "b"), more=QUIET, ttl_s=3.0) as two:
        await two.off_loop(two.wait_together)
        key = await two.off_loop(two["a"].key)
        async with RawNode(two["b"].url, script=Held()):
            await measured(two)
            async with RawClient(two["a"].url, key) as http:
                await http.post(CHAT, BODY)
                await http.read_until(b"begun")
                os.kill(two["b"].program.pid, signal.SIGSTOP)
                try:
                    reply = await http.answer()
                finally:
                    os.kill(two["b"].program.pid, signal.SIGCONT)
        assert [event["error"]["code"] for event in reply.data if "error" in event] == ["incomplete"]
        await two.off_loop(two.wait_together)
