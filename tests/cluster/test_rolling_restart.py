"""Every coordinator is restarted, one after the other, under clients without a pause: nobody notices."""

import asyncio
import contextlib

import httpx
import pytest

from tests.cluster.conftest import QUIET
from tests.support.cluster import Cluster
from tests.support.cluster_load import Balancer, Fleet, Load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NODES, CLIENTS, ROUND = 9, 6, 30


async def watch(balancer: Balancer) -> None:
    """Lead nobody to a coordinator that says it is not ready, as a load balancer does; runs for ever."""
    async with httpx.AsyncClient(trust_env=False, timeout=20.0) as http:
        while True:
            for name, url in balancer.urls.items():
                with contextlib.suppress(httpx.HTTPError):
                    ready = (await http.get(f"{url}/readyz")).status_code == 200
                    balancer.up = balancer.up | {name} if ready else balancer.up - {name}
            await asyncio.sleep(0.05)


async def test_a_rolling_restart_fails_no_request(tmp_path, postgres, redis, capsys):
    # The balancer of this test asks very often, on a machine that may be very slow: so it is given time.
    settings = {"more": QUIET, "leave_s": 5.0, "drain_s": 60.0}
    with Cluster(tmp_path, postgres.create_database(), redis.url, **settings) as cluster:
        await cluster.off_loop(cluster.wait_together)
        key = await cluster.off_loop(cluster["a"].key, "paid")
        balancer = Balancer({name: each.url for name, each in cluster.replicas.items()})
        async with Fleet(balancer, NODES) as fleet:
            await cluster.off_loop(cluster.wait_nodes, NODES, basis="coordinator-timed")
            watching = asyncio.create_task(watch(balancer))
            async with Load(balancer, key, CLIENTS) as load:
                for name in ("a", "b", "c"):
                    await load.more(ROUND)
                    assert await cluster.off_loop(cluster[name].program.stop, 120.0) == 0
                    await cluster.off_loop(cluster.start, name)
                    await cluster.off_loop(cluster.wait_together)
                    await cluster.off_loop(cluster.wait_nodes, NODES, basis="coordinator-timed")
                    await load.more(ROUND // 3, of=[name])
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            assert all(node.links >= 1 for node in fleet.nodes)
            assert sum(node.links for node in fleet.nodes) > NODES, "nodes moved"
    with capsys.disabled():
        print("\n" + load.table())  # noqa: T201 — for whoever reads the run
    assert {seen.ending for _, seen in load.seen} == {"answer"}
    assert [fault for _, seen in load.seen for fault in seen.faults] == []
