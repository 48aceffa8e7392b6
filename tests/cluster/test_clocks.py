"""Machines whose wall clocks differ by an hour, and jump while they run: nothing that is measured, leased or limited minds."""

import pytest

from tests.cluster.conftest import QUIET
from tests.cluster.test_hop import ask, measured
from tests.cluster.test_replicas import recorded
from tests.support.cluster import Cluster
from tests.support.coordinator import eventually
from tests.support.node_process import NodeProcess
from tests.support.wall_clock import WallClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOUR = 3600.0


async def test_coordinators_whose_clocks_are_an_hour_apart_and_jump_stay_together_and_say_so(tmp_path, postgres, redis):
    clock, nodes_clock = WallClock(tmp_path / "b-clock", HOUR), WallClock(tmp_path / "n-clock", -HOUR)
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a",), more=QUIET) as cluster:
        cluster.start("b", **clock.env)
        await cluster.off_loop(cluster.wait_together, "a", "b")
        key = await cluster.off_loop(cluster["a"].key, "paid")
        async with NodeProcess(cluster["b"].url, tmp_path / "node", "--model", "brain/mock", env=nodes_clock.env):
            await measured(cluster)
            for ahead_s in (HOUR, 0.0, 2 * HOUR, -HOUR):
                clock.is_ahead(ahead_s)
                nodes_clock.is_ahead(-ahead_s)
                for name in ("a", "b"):
                    assert (await ask(cluster[name].url, key)).reply.status == 200

            def told() -> bool:
                rows = {row["name"]: row for row in cluster.status("a")["coordinators"]}
                assert rows["b"]["reachable"]
                return bool(rows["b"]["clock_ahead_s"] == pytest.approx(-HOUR, abs=30))

            await cluster.off_loop(eventually, told)
            assert "its clock is 36" in await cluster.off_loop(cluster.command, "a", "status")
            node, *_ = await cluster.off_loop(cluster["a"].nodes)
            assert node["measured"]["rtt_ms"] < HOUR
        assert "clocks are apart" in cluster["a"].program.output
        bodies = await cluster.off_loop(recorded, cluster, tmp_path)
        assert len(bodies) == 8
