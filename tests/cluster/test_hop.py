"""A request at one coordinator for a node that another holds: one hop, with real processes, PostgreSQL and Redis."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

BODY = {"model": "brain/mock", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def two(tmp_path, postgres, redis) -> Iterator[Cluster]:
    with Cluster(tmp_path, postgres.create_database(), redis.url, ("a", "b")) as cluster:
        yield cluster


async def test_a_request_is_answered_through_the_coordinator_that_holds_the_node(two):
    await two.off_loop(two.wait_together)
    key = await two.off_loop(two["a"].key)
    async with RawNode(two["b"].url) as node:
        await two.off_loop(two.wait_nodes, 1, basis="coordinator-timed")
        for stream in (True, False):
            async with RawClient(two["a"].url, key) as http:
                await http.post("/v1/chat/completions", {**BODY, "stream": stream})
                reply = await http.answer()
            assert reply.status == 200, reply.body
            text = reply.text if stream else reply.json["choices"][0]["message"]["content"]
            assert text == "one two three "
        await two.off_loop(two.wait_nodes, 1, active=0, outcomes=2)
        seen = [(await two.off_loop(each.nodes))[0] for each in two.running.values()]
        assert seen[0] == seen[1], "both coordinators tell the same of the node"
        assert seen[0]["measured"]["first_output_ms"]["brain/mock"]["samples"] == 1
        assert node.node_id == seen[0]["node_id"]
