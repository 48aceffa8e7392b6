"""A stream that keeps coming past the request's own deadline ends in one error event, and is no fault of its node."""

import asyncio

from tests.support.coordinator import CoordinatorProcess
from tests.support.raw_client import RawClient
from tests.support.raw_node import RawJob, RawNode, chunk

CHAT = {"model": "brain/mock", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


async def endless(job: RawJob) -> None:
    await job.accept()
    await job.head()
    while not job.cancelled.is_set():
        await job.event(chunk("word "))
        await asyncio.sleep(0.05)
    await job.end(ok=False, cause="cancelled")


async def test_an_endless_stream_ends_at_the_deadline_and_nobody_is_blamed(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text("[deadlines]\nwhole_s = 5.0\n[join]\ntoken_required = false\n")
    with CoordinatorProcess(tmp_path / "coord", "--config", str(config)) as coordinator:
        key = coordinator.key()
        async with RawNode(coordinator.url) as node:
            before = await asyncio.to_thread(
                coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE"
            )
            node.script = endless
            async with RawClient(coordinator.url, key) as client:
                reply = await client.exchange("POST", "/v1/chat/completions", CHAT)
                assert reply.whole
                assert [event["error"]["code"] for event in reply.data if "error" in event] == ["incomplete"]
                assert "[DONE]" not in reply.data
                receipt = await client.exchange("GET", f"/v1/receipts/{reply.headers['x-brain-receipt']}")
            assert node.jobs[-1].cancelled.is_set()
            (attempt,) = receipt.json["body"]["attempts"]
            assert (attempt["cause"], attempt["blamed"]) == ("deadline", False)
            after = await asyncio.to_thread(coordinator.wait_for_node, node.node_id, active=0)
            assert after["reliability"] == before["reliability"]
