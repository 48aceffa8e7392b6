"""A real `brain-node` behind a load balancer that leads every connection to the next coordinator, and loses its own."""

import asyncio
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cluster.conftest import QUIET
from tests.support.cluster import Cluster
from tests.support.coordinator import eventually
from tests.support.node_process import NodeProcess
from tests.support.tunnel import TcpServer, pump

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

BODY = {"model": "brain/mock", "messages": [{"role": "user", "content": "hello"}]}


class RoundRobin:
    """Passes each connection on to the next of several ports that takes it."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._server = TcpServer()

    async def __aenter__(self) -> str:
        await self._server.start(self._serve)
        return f"http://127.0.0.1:{self._server.port}"

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            self._ports.append(self._ports.pop(0))
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._ports[-1])
            except OSError:
                continue
            pumps = [asyncio.create_task(pump(reader, far_writer)), asyncio.create_task(pump(far_reader, writer))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                far_writer.transport.abort()
                for each in pumps:
                    each.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            return


def answered(url: str, key: str) -> bool:
    reply = httpx.post(
        f"{url}/v1/chat/completions", json=BODY, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60
    )
    return reply.status_code == 200


async def test_a_node_behind_any_balancer_serves_every_coordinator_and_outlives_its_own(tmp_path, postgres, redis):
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a", "b"), more=QUIET) as two:
        await two.off_loop(two.wait_together)
        key = await two.off_loop(two["a"].key)
        ports = [urlsplit(each.url).port or 0 for each in two.replicas.values()]
        async with RoundRobin(ports) as url, NodeProcess(url, tmp_path / "node"):
            await two.off_loop(two.wait_nodes, 1, basis="coordinator-timed", state="ONLINE")
            for each in two.replicas.values():
                for _ in range(4):  # some of its slots went past the coordinator that holds the link
                    assert await two.off_loop(answered, each.url, key)
            holder = next(
                row["name"] for row in (await two.off_loop(two.status, "a"))["coordinators"] if row["nodes"] == 1
            )
            two.kill(holder)
            await two.off_loop(two.wait_nodes, 1, state="ONLINE")
            (other,) = two.running
            await two.off_loop(eventually, lambda: answered(two[other].url, key), 60.0)
            assert (await two.off_loop(two[other].nodes))[0]["basis"] == "coordinator-timed", "not measured anew"
