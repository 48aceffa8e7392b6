"""What /metrics tells of tabs. No browser is needed."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from brain_coord.browser.models import add_model
from brain_node.contract.identity import Identity
from tests.browser.test_tab_memory import joined
from tests.support.eventually import eventually
from tests.support.in_process import coordinator_inside
from tests.support.qwen3 import build_known_qwen3


async def gauges(url: str) -> dict[tuple[str, ...], float]:
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"{url}/metrics")).text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "tab" in sample.name or "compute" in sample.name
    }


async def test_without_a_tab_every_figure_is_there_and_nought(tmp_path):
    async with coordinator_inside(tmp_path) as inside:
        told = await gauges(inside.url)
    assert len(told) == 13
    assert set(told.values()) == {0.0}


async def test_tabs_their_work_and_the_stages_they_hold_are_counted(tmp_path):
    build_known_qwen3(tmp_path / "model")
    model = add_model(tmp_path / "data", tmp_path / "model", "qwen/qwen3-0.6b", stages=2, replicas=1)
    lends, rests, liar = (Identity.generate() for _ in range(3))
    async with coordinator_inside(tmp_path / "data") as inside:
        network = inside.coordinator.browser
        network.tabs.on_join.clear()  # no challenge: it would be a job of its own
        await eventually(lambda: network.keeper.shelf.models)
        async with joined(inside.url, lends), joined(inside.url, rests):
            async with joined(inside.url, liar):
                for identity in (lends, rests, liar):
                    await eventually(lambda identity=identity: network.tabs.get(identity.node_id))
                tab = network.tabs.get(lends.node_id)
                tab.ops_s = 1e9
                tab.stages.add(model.stages[0].name)
                tab.stages.add("of a model that is offered no more")
                network.tabs.reserve(tab)
                network.tabs.drains(network.tabs.get(rests.node_id), draining=True)
                await network.tabs.caught(network.tabs.get(liar.node_id), "the product is wrong")
                told = await gauges(inside.url)
                assert [told["brain_tabs", state] for state in ("ONLINE", "BUSY", "DEGRADED", "DRAINING")] == [
                    0,
                    1,
                    1,
                    1,
                ]
                assert (told["brain_tab_slots", "offered"], told["brain_tab_slots", "active"]) == (3, 1)
                assert told["brain_tabs_unmeasured",] == 2
            left = network.tabs.get(liar.node_id)
            await eventually(lambda: not left.connected)
            told = await gauges(inside.url)
            assert told["brain_tabs", "OFFLINE"] == 1, "shown for as long as it has to wait, as on /network"
            assert told["brain_tabs_caught_total",] == 1
            assert (told["brain_tab_stages", "offered"], told["brain_tab_stages", "held"]) == (2, 1)


async def test_products_that_run_are_counted(tmp_path):
    async with coordinator_inside(tmp_path) as inside:
        network, store = inside.coordinator.browser, inside.coordinator.store
        _, key = await store.create_key("free")
        headers = {"authorization": f"Bearer {key}"}
        network.tabs.on_join.append(lambda tab: network.tabs.measured(tab, 1e9))
        async with (
            joined(inside.url, Identity.generate()),
            httpx.AsyncClient(base_url=inside.url, trust_env=False, headers=headers) as client,
        ):
            body = {"rows": 64, "inner": 64, "columns": 64, "seed": 1, "wait": False}
            reply = await client.post("/v1/compute/matmul", json=body)
            assert reply.status_code == 202, reply.text
            assert (await gauges(inside.url))["brain_compute_jobs_running",] == 1
            await client.delete(f"/v1/compute/jobs/{reply.json()['id']}")
            await eventually(lambda: not network.book.running)
            assert (await gauges(inside.url))["brain_compute_jobs_running",] == 0
