"""What the coordinator's own slowness and a lossy line do to a node: nothing that it would have to pay for."""

import asyncio
import json
import signal

import pytest

from tests.support.honesty import MODEL, chat, http_client, ready
from tests.support.minds import Mind
from tests.support.raw_node import RawNode, chunk

QUICK_HEARTBEATS = {"heartbeat_s": 1.0, "ping_s": 1.0}


@pytest.mark.case("D-01")
@pytest.mark.parametrize("lab", [QUICK_HEARTBEATS], indirect=True)
async def test_a_coordinator_that_stood_still_gives_its_nodes_the_time_back(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node, http_client(lab) as client:
        await ready(lab, node)
        before = lab.wait_for_node(node.node_id)["measured"]["rtt_ms"]
        lab.program.send(signal.SIGSTOP)
        await asyncio.sleep(5.0)  # longer than three heartbeats
        lab.program.send(signal.SIGCONT)
        await asyncio.sleep(2.0)
        seen = await asyncio.to_thread(lab.wait_for_node, node.node_id)
        assert seen["state"] in ("ONLINE", "BUSY")
        assert not any("node silent" in line for line in lab.program.lines)
        assert node.link.close_code is None
        assert seen["measured"]["rtt_ms"] < before + 4000, "a ping across the stall taught nothing"
        assert (await client.post("/v1/chat/completions", json=chat())).status_code == 200


@pytest.mark.case("D-01")
@pytest.mark.parametrize("lab", [QUICK_HEARTBEATS], indirect=True)
async def test_a_body_of_30_mb_holds_up_no_heartbeat_and_closes_no_link(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind()) as node,
        RawNode(lab.url, models=[MODEL], script=Mind()) as other,
        http_client(lab) as client,
    ):
        await ready(lab, node, other)
        large = chat(node=node.node_id)
        large["messages"][0]["content"] = "x" * (30 * 1000 * 1000)
        reply = await client.post("/v1/chat/completions", content=json.dumps(large).encode())
        assert reply.status_code == 200
        assert json.loads(node.jobs[-1].body)["messages"] == large["messages"]
        for each in (node, other):
            assert each.link.close_code is None
            assert lab.wait_for_node(each.node_id)["state"] in ("ONLINE", "BUSY")
        assert not any("node silent" in line for line in lab.program.lines)


@pytest.mark.case("D-11")
async def test_a_job_that_was_lost_before_the_node_had_it_goes_to_another_and_runs_once(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind()) as lossy,
        RawNode(lab.url, models=[MODEL], script=Mind(pause_s=0.05)) as good,  # slower, so the other is asked first
        http_client(lab) as client,
    ):
        await ready(lab, lossy, good)
        good.script = Mind()

        async def swallowed(job):
            await job.drop()

        lossy.script = swallowed
        replies = [await client.post("/v1/chat/completions", json=chat(number)) for number in range(6)]
        assert {reply.status_code for reply in replies} == {200}
        assert lossy.jobs, "it was asked"
        assert len(good.jobs) == 6, "each ran exactly once where it ran at all"
        both = next(reply for reply in replies if reply.json()["brain"]["attempts"] == 2)
        receipt = (await client.get(f"/v1/receipts/{both.json()['brain']['receipt']}")).json()["body"]
        assert [attempt["cause"] for attempt in receipt["attempts"]] == ["node_lost", None]


@pytest.mark.case("D-11")
async def test_a_cut_after_the_first_output_is_one_error_and_nobody_else_is_asked(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind()) as lossy,
        RawNode(lab.url, models=[MODEL], script=Mind()) as good,
        http_client(lab) as client,
    ):
        await ready(lab, lossy, good)

        async def cut(job):
            await job.accept()
            await job.head()
            await job.event(chunk("one "))
            await asyncio.sleep(0.1)
            await job.drop()

        lossy.script = cut
        body = (await client.post("/v1/chat/completions", json=chat(node=lossy.node_id, stream=True))).text
        assert "one " in body
        assert body.count('"error"') == 1
        assert good.jobs == []
        seen = await asyncio.to_thread(lab.wait_for_node, lossy.node_id, active=0)
        assert seen["active"] == 0
