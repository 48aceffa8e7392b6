"""Three coordinators, fifty nodes, clients without a pause; one of everything dies under them, and comes back."""

import json

import httpx
import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_load import Balancer, Fleet, Load
from tests.support.coordinator import brain_coord
from tests.support.postgres import PostgresServer
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NODES, CLIENTS, ROUND = 50, 10, 60
QUICK = """
[measure]
shadow_share = 0
canary_s = 0
"""


@pytest.fixture
def own_postgres():
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


async def test_whatever_dies_each_client_gets_one_answer_or_one_clean_error(tmp_path, own_postgres, redis, capsys):
    with Cluster(tmp_path, own_postgres.create_database(), redis.url, more=QUICK) as cluster:
        await cluster.off_loop(cluster.wait_together)
        key = await cluster.off_loop(cluster["a"].key, "paid")
        balancer = Balancer({name: each.url for name, each in cluster.replicas.items()})
        async with Fleet(balancer, NODES) as fleet:
            await cluster.off_loop(cluster.wait_nodes, NODES, 240.0, basis="coordinator-timed")
            assert set(fleet.where()) == {"a", "b", "c"}, "each holds some of them"
            async with Load(balancer, key, CLIENTS) as load:
                await _storm(cluster, balancer, load, own_postgres, redis)
            await cluster.off_loop(cluster.wait_nodes, NODES, 120.0, active=0)
            lines = await cluster.off_loop(recorded, cluster, tmp_path)
            counted = {name: await _counters(each.url) for name, each in cluster.running.items()}
            statuses = [await cluster.off_loop(cluster.status, name) for name in cluster.replicas]
    with capsys.disabled():
        print("\n" + load.table())  # noqa: T201 — for whoever reads the run
    _judge(load, lines, counted)
    assert all(each["hops_in"] == each["hops_out"] == 0 for each in statuses)
    assert all("Traceback" not in each.program.output for each in cluster.replicas.values())


async def _storm(
    cluster: Cluster, balancer: Balancer, load: Load, postgres: PostgresServer, redis: RedisServer
) -> None:
    await load.more(ROUND)

    cluster.kill("b")
    balancer.up.discard("b")
    await cluster.off_loop(cluster.wait_together, "a", "c")
    await cluster.off_loop(cluster.wait_nodes, NODES, 120.0, basis="coordinator-timed")
    await load.more(ROUND)

    redis.kill()
    await cluster.off_loop(cluster.wait_state, "alone")
    await load.more(ROUND, of=["a"])
    await load.more(ROUND, of=["c"])
    redis.start()
    await cluster.off_loop(cluster.wait_together, "a", "c")
    await cluster.off_loop(cluster.wait_nodes, NODES, 120.0)
    await load.more(ROUND)

    postgres.kill()
    await load.more(ROUND)
    postgres.start()
    await cluster.off_loop(cluster.wait_recorded)

    await cluster.off_loop(cluster.start, "b")
    await cluster.off_loop(cluster.wait_together)
    balancer.up.add("b")
    await load.more(ROUND // 2, of=["b"])


def recorded(cluster: Cluster, folder) -> list[dict]:
    """Every receipt in the store, after the last one has arrived there; verified."""
    cluster.wait_recorded()
    exported = folder / "receipts.jsonl"
    env = cluster.env
    done = brain_coord(
        "receipts", "export", "--output", str(exported), "--data-dir", str(cluster["a"].data_dir), env=env
    )
    assert done.returncode == 0, done.stderr
    signer = folder / "signers.json"
    signer.write_text(httpx.get(f"{cluster['a'].url}/v1/signer", trust_env=False).text)
    verified = brain_coord("receipts", "verify", str(exported), "--signer", str(signer), "--json")
    assert verified.returncode == 0, verified.stdout
    found = json.loads(verified.stdout)
    assert found["gaps"] == 0
    assert len(found["chains"]) == len(cluster.replicas), "each coordinator signs a chain of its own"
    return [json.loads(line)["body"] for line in exported.read_text().splitlines()]


async def _counters(url: str) -> dict[str, float]:
    """The metrics of one coordinator by name and labels."""
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"{url}/metrics")).text
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in rows}


def _judge(load: Load, receipts: list[dict], counted: dict[str, dict[str, float]]) -> None:
    assert [fault for _, seen in load.seen for fault in seen.faults] == []
    endings = {name: {seen.ending for each, seen in load.seen if each == name} for name in ("a", "b", "c")}
    assert "cut" not in endings["a"] | endings["c"], (
        "only who asked the coordinator that was killed lost the connection"
    )
    assert {seen.ending for _, seen in load.seen} <= {"answer", "error", "error event", "cut"}
    errors = [seen for _, seen in load.seen if seen.ending in ("error", "error event")]
    assert len(errors) < len(load.seen) // 10, "hardly anybody gets an error at all"

    by_request = {body["request_id"]: body for body in receipts}
    assert len(by_request) == len(receipts), "no request has two receipts"
    for _, seen in load.seen:
        if seen.ending == "answer":
            assert by_request[seen.request_id]["outcome"] == "completed"
        elif seen.ending == "error event":
            assert by_request[seen.request_id]["outcome"] in ("incomplete", "failed")

    for name in ("a", "c"):
        metrics = counted[name]
        answered = sum(
            value
            for key, value in metrics.items()
            if key.startswith("brain_requests_total") and 'outcome="completed"' in key
        )
        assert answered == load.answers([name]), "each counts what it answered, once"
        assert metrics["brain_requests_running"] == metrics["brain_requests_waiting"] == 0
        assert metrics['brain_slots{kind="active"}'] == 0
        assert metrics["brain_cluster_coordinators"] == 3
        assert metrics["brain_cluster_alone"] == 0
