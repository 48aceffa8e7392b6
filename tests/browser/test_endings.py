"""Clients that leave, coordinators that restart or stop, and decisions that can be made again from a receipt alone."""

import asyncio
import json

import httpx
import pytest
import pytest_asyncio

from brain_coord.browser.models import add_model
from tests.support.coordinator import CoordinatorProcess, brain_coord
from tests.support.qwen3 import build_known_qwen3
from tests.support.tabs import api, eventually, lent_tab, webgpu_browser

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MODEL = "qwen/qwen3-0.6b"
LONG = {"rows": 1024, "inner": 2048, "columns": 1024, "seed": 4}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Go on"}], "mode": "BROWSER_ONLY"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with webgpu_browser() as running:
        yield running


@pytest.fixture
def coordinator(tmp_path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join") as running:
        yield running


async def view(coordinator, tab_id):
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.get(f"{coordinator.url}/v1/tabs/{tab_id}")
        return reply.json() if reply.status_code == 200 else {}


async def until(coordinator, tab_id, check):
    async def there():
        found = await view(coordinator, tab_id)
        return found and check(found)

    await eventually(there)


async def test_clients_that_leave_free_the_tabs(browser, coordinator, tmp_path):
    build_known_qwen3(tmp_path / "model")
    add_model(coordinator.data_dir, tmp_path / "model", MODEL, stages=1, replicas=1)
    async with lent_tab(browser, coordinator.url) as tab, api(coordinator.url, coordinator.key()) as client:
        tab_id = await tab.node_id
        await until(coordinator, tab_id, lambda found: found["stages"])
        body = {**CHAT, "stream": True, "ignore_eos": True, "max_tokens": 900}
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            async for line in reply.aiter_lines():
                if "content" in line:
                    break
            assert (await view(coordinator, tab_id))["active"] == 1
        await until(coordinator, tab_id, lambda found: found["active"] == 0)

        asking = asyncio.create_task(client.post("/v1/compute/matmul", json=LONG))
        await until(coordinator, tab_id, lambda found: found["active"] > 0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(coordinator, tab_id, lambda found: found["active"] == 0 and found["state"] == "ONLINE")

        started = (await client.post("/v1/compute/matmul", json={**LONG, "wait": False})).json()
        assert (await client.delete(f"/v1/compute/jobs/{started['id']}")).json()["cancelled"] is True

        async def over():
            return (await client.get(f"/v1/compute/jobs/{started['id']}")).json()["status"] == "cancelled"

        await eventually(over)
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200, "and it still serves"


async def test_a_tab_comes_back_by_itself_after_a_restart_and_nobody_elses_job_is_seen(browser, coordinator):
    key, other = coordinator.key(), coordinator.key()
    async with lent_tab(browser, coordinator.url) as tab:
        tab_id = await tab.node_id
        async with api(coordinator.url, key) as client, api(coordinator.url, other) as stranger:
            job = (
                await client.post("/v1/compute/matmul", json={"rows": 8, "inner": 8, "columns": 8, "seed": 1})
            ).json()
            for path in ("", "/events", "/result"):
                assert (await stranger.get(f"/v1/compute/jobs/{job['id']}{path}")).status_code == 404
            assert (await stranger.get(f"/v1/receipts/{job['receipt']}")).status_code == 404
        assert await asyncio.to_thread(coordinator.program.stop) == 0
        await asyncio.to_thread(coordinator.restart)
        await until(coordinator, tab_id, lambda found: found["measured"]["ops_s"] is not None)
        await tab.measured()


async def test_a_stop_tells_who_waits_and_keeps_the_receipt(browser, tmp_path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join", "--drain-timeout", "1") as coordinator:
        key = coordinator.key()
        async with lent_tab(browser, coordinator.url) as tab, api(coordinator.url, key) as client:
            tab_id = await tab.node_id
            asking = asyncio.create_task(client.post("/v1/compute/matmul", json=LONG))
            await until(coordinator, tab_id, lambda found: found["active"] > 0)
            assert await asyncio.to_thread(coordinator.program.stop) == 0
            reply = await asking
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "draining"), reply.text[:800]
            receipt_id = reply.json()["brain"]["receipt"]
            await asyncio.to_thread(coordinator.restart)
            async with api(coordinator.url, key) as again:
                body = (await again.get(f"/v1/receipts/{receipt_id}")).json()["body"]
            assert (body["outcome"], body["verified"]) == ("client_cancelled", False)


async def test_decisions_for_tabs_can_be_made_again_from_their_receipts(browser, coordinator, tmp_path):
    build_known_qwen3(tmp_path / "model")
    add_model(coordinator.data_dir, tmp_path / "model", MODEL, stages=1, replicas=1)
    async with lent_tab(browser, coordinator.url) as tab, api(coordinator.url, coordinator.key()) as client:
        tab_id = await tab.node_id
        await until(coordinator, tab_id, lambda found: found["stages"])
        product = (
            await client.post("/v1/compute/matmul", json={"rows": 8, "inner": 8, "columns": 8, "seed": 1})
        ).json()
        chat = (await client.post("/v1/chat/completions", json=CHAT)).json()
        for receipt_id in (product["receipt"], chat["brain"]["receipt"]):
            envelope = (await client.get(f"/v1/receipts/{receipt_id}")).json()
            path = tmp_path / f"{receipt_id}.json"
            path.write_text(json.dumps(envelope))
            checked = brain_coord("receipts", "verify", str(path))
            assert checked.returncode == 0, checked.stderr
            replayed = brain_coord("route", "--receipt", str(path), "--json")
            assert replayed.returncode == 0, replayed.stdout + replayed.stderr
            assert envelope["body"]["decision"]["node"]["decision"]["selected"] == tab_id
