"""Through the true servers and sockets: an answer, its receipt, and what a client is told when there is none."""

import asyncio
import json

import httpx
from openai import AsyncOpenAI

from tests.support.coordinator import CoordinatorProcess, brain_coord
from tests.support.raw_node import RawNode

CHAT = {"model": "brain/mock", "messages": [{"role": "user", "content": "hello"}]}


async def ready(coordinator: CoordinatorProcess, node: RawNode) -> None:
    await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")


async def test_the_official_client_streams_and_the_receipt_verifies_offline(coordinator, tmp_path):
    key = coordinator.key()
    async with RawNode(coordinator.url) as node:
        await ready(coordinator, node)
        async with AsyncOpenAI(base_url=f"{coordinator.url}/v1", api_key=key) as client:
            stream = await client.chat.completions.create(**CHAT, stream=True)
            chunks = [chunk async for chunk in stream]
            whole = await client.chat.completions.create(**CHAT)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content == "one two three "
    brain = chunks[-1].brain
    assert brain["node"] == node.node_id
    assert brain["route"].startswith("NATIVE_NETWORK (COMMUNITY) → ")

    async with httpx.AsyncClient(base_url=coordinator.url, headers={"Authorization": f"Bearer {key}"}) as http:
        receipt = (await http.get(f"/v1/receipts/{brain['receipt']}")).json()
        assert (await http.get(f"/v1/receipts/{brain['receipt']}/verify")).json()["valid"]
        other = {"Authorization": f"Bearer {coordinator.key()}"}
        assert (await http.get(f"/v1/receipts/{brain['receipt']}", headers=other)).status_code == 404
    assert receipt["body"]["outcome"] == "completed"
    assert receipt["body"]["tokens"]["completion_billed"] == 3

    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt))
    assert brain_coord("receipts", "verify", str(file)).returncode == 0
    file.write_text(json.dumps(receipt).replace(node.node_id, "N-0000000000000000", 1))
    assert brain_coord("receipts", "verify", str(file)).returncode == 1


async def test_a_request_nobody_can_serve_gets_the_sentence(coordinator):
    key = coordinator.key()
    async with httpx.AsyncClient(base_url=coordinator.url, headers={"Authorization": f"Bearer {key}"}) as http:
        reply = await http.post("/v1/chat/completions", json=CHAT)
    assert reply.status_code == 503
    assert reply.headers["retry-after"]
    assert reply.json()["error"]["message"] == "0 of 0 nodes can serve brain/mock right now (no node has joined)"


async def test_sigterm_with_an_open_link_ends_the_coordinator_cleanly(coordinator):
    async with RawNode(coordinator.url) as node:
        await ready(coordinator, node)
        assert await asyncio.to_thread(coordinator.program.stop) == 0
