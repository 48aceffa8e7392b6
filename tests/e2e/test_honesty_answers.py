"""Nodes that answer wrongly, with another model, or with nothing: found by what they say, and only they pay."""

import asyncio
import re

import pytest

from tests.support.honesty import MODEL, chat, http_client, ready, until
from tests.support.lab import Lab
from tests.support.minds import Mind
from tests.support.raw_node import RawNode, answer

SHADOWS = {"probes": {"shadow_share": 1.0, "closer_share": 1.0}}
FIRST, OTHER, FOR_THE_FIRST = {"ask_usd_per_1m": 1.0}, {"ask_usd_per_1m": 9.0}, {"max_ask_usd_per_1m": 5.0}
"""A budget leads requests to one node, and says nothing against a second opinion of the others."""


def is_out(lab: Lab, node: RawNode) -> bool:
    return any(each["node_id"] == node.node_id and each["state"] == "DEGRADED" for each in lab.nodes())


@pytest.mark.parametrize("lab", [SHADOWS], indirect=True)
async def test_a_swapped_model_is_out_soon_and_back_only_when_it_is_the_right_one_again(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind(), offer=OTHER) as one,
        RawNode(lab.url, models=[MODEL], script=Mind(), offer=OTHER) as two,
        RawNode(lab.url, models=[MODEL], script=Mind(), offer=FIRST) as liar,
        http_client(lab) as client,
    ):
        await ready(lab, one, two, liar)
        liar.script = Mind(salt="a much smaller model")
        for number in range(40):
            reply = await client.post("/v1/chat/completions", json=chat(number, **FOR_THE_FIRST))
            if reply.status_code == 503:
                break
            # Each answer is compared before the next is asked for: it is answers that count, not time.
            await until(lambda asked=number + 1: len(one.jobs) + len(two.jobs) >= 2 * asked or is_out(lab, liar))
        assert reply.status_code == 503
        out = await asyncio.to_thread(lab.wait_for_node, liar.node_id, state="DEGRADED")
        assert out["suspect"]
        assert "comparisons with its peers were lost" in out["degraded"]
        assert "degraded" in reply.json()["error"]["message"]
        for honest in (one, two):
            shown = await asyncio.to_thread(lab.show, honest.node_id)
            assert shown["state"] in ("ONLINE", "BUSY")
            assert shown["health"]["comparisons_lost"] == 0
            assert "mismatches" not in {term["name"] for term in shown["score"]["terms"] if term["points"]}
        shown = await asyncio.to_thread(lab.show, liar.node_id)
        assert next(term for term in shown["score"]["terms"] if term["name"] == "mismatches")["points"] == -20
        assert {event["result"] for event in shown["score"]["events"]} >= {"mismatched", "completed"}

        liar.script = Mind()
        await asyncio.to_thread(lab.wait_for_node, liar.node_id, state="ONLINE")


@pytest.mark.parametrize("lab", [SHADOWS], indirect=True)
async def test_a_second_opinion_cannot_be_told_from_a_customers_job(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind(), offer=FIRST) as one,
        RawNode(lab.url, models=[MODEL], script=Mind(), offer=OTHER) as two,
        http_client(lab) as client,
    ):
        await ready(lab, one, two)
        for stream in (True, False):
            one.jobs.clear()
            two.jobs.clear()
            await client.post("/v1/chat/completions", json=chat(7, stream=stream, **FOR_THE_FIRST))
            await until(lambda: two.jobs)
            asked, again = one.jobs[0], two.jobs[0]
            assert asked.body == again.body
            assert set(asked.message) == set(again.message)
            shape = re.compile(r"req-[0-9a-f]{24}-1")
            assert shape.fullmatch(asked.id)
            assert shape.fullmatch(again.id)
            # The customer's had to get through the gateway first, which on a busy machine takes its time.
            assert -0.01 < again.message["deadline_s"] - asked.message["deadline_s"] < 60
            assert all(message["deadline_s"] % 1 for message in (asked.message, again.message))
            assert (asked.message["path"], asked.message["model"]) == (again.message["path"], again.message["model"])


@pytest.mark.parametrize("lab", [SHADOWS], indirect=True)
@pytest.mark.parametrize(
    "more", [{"privacy": "STANDARD"}, {"privacy": "PRIVATE"}, {"temperature": 0.7}, {"temperature": None}, {"n": 2}]
)
async def test_only_public_greedy_requests_are_ever_asked_twice(lab, more):
    token = lab.token("--operator")
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind(), token=token) as one,
        RawNode(lab.url, models=[MODEL], script=Mind(), token=token) as two,
        http_client(lab) as client,
    ):
        await ready(lab, one, two)
        body = {name: value for name, value in chat(1, **more).items() if value is not None}
        for _ in range(5):
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        await asyncio.sleep(0.5)
        assert len(one.jobs) + len(two.jobs) == 5
        assert all(job.body for job in (*one.jobs, *two.jobs))
        assert (await client.post("/v1/chat/completions", json=chat(2, privacy="PUBLIC"))).status_code == 200
        await until(lambda: len(one.jobs) + len(two.jobs) == 7)


@pytest.mark.parametrize("lab", [SHADOWS], indirect=True)
@pytest.mark.parametrize("by", ["node", "region"])
async def test_a_request_that_says_where_it_may_go_is_asked_nobody_else(lab, by):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind(), offer={"region": "eu"}) as one,
        RawNode(lab.url, models=[MODEL], script=Mind(), offer={"region": "us"}) as two,
        http_client(lab) as client,
    ):
        await ready(lab, one, two)
        only = {"node": one.node_id} if by == "node" else {"region": "eu", "require_region": True}
        for number in range(5):
            assert (await client.post("/v1/chat/completions", json=chat(number, **only))).status_code == 200
        assert (await client.post("/v1/chat/completions", json=chat(9, region="eu"))).status_code == 200
        await until(lambda: two.jobs)
        await asyncio.sleep(0.2)
        assert [job.request["messages"] for job in two.jobs] == [chat(9)["messages"]]
        assert len(one.jobs) == 6


CANARIES = {"probes": {"canary_s": 0.3}}


@pytest.mark.parametrize("lab", [CANARIES], indirect=True)
async def test_wrong_answers_to_canaries_end_work_and_right_ones_bring_it_back(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node:
        await ready(lab, node)
        await until(lambda: len(node.jobs) >= 3)
        assert lab.show(node.node_id)["reliability"] >= 70
        node.script = Mind(say=lambda job: ["I ", "can ", "help ", "with ", "that."])
        degraded = await asyncio.to_thread(lab.wait_for_node, node.node_id, state="DEGRADED")
        assert degraded["degraded"] == "3 canaries in a row failed"
        assert degraded["suspect"]
        shown = await asyncio.to_thread(lab.show, node.node_id)
        assert "canary" in shown["way_back"]
        assert next(term for term in shown["score"]["terms"] if term["name"] == "canaries")["points"] < 0
        node.script = Mind()
        await asyncio.to_thread(lab.wait_for_node, node.node_id, state="ONLINE")


@pytest.mark.parametrize("lab", [CANARIES], indirect=True)
async def test_a_reconnect_or_a_restart_of_the_coordinator_skips_nothing(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node:
        await ready(lab, node)
        node.script = Mind(say=lambda job: ["no"])
        await asyncio.to_thread(lab.wait_for_node, node.node_id, state="DEGRADED")
        identity = node.identity
    wrong = Mind(say=lambda job: ["no"])
    async with RawNode(lab.url, models=[MODEL], script=wrong, identity=identity):
        await asyncio.to_thread(lab.wait_for_node, identity.node_id, state="DEGRADED")
    assert await asyncio.to_thread(lab.program.stop) == 0
    await asyncio.to_thread(lab.restart)
    async with RawNode(lab.url, models=[MODEL], script=wrong, identity=identity):
        await asyncio.to_thread(lab.wait_for_node, identity.node_id, state="DEGRADED")


async def test_a_mock_that_failed_comes_back_by_answering_at_all(lab):
    body = {"model": "brain/mock", "messages": [{"role": "user", "content": "hello"}]}
    async with RawNode(lab.url) as node, http_client(lab) as client:
        await ready(lab, node)

        async def breaks(job):
            await job.accept()
            await job.end(ok=False, cause="engine_lost")

        node.script = breaks
        async with asyncio.timeout(60):
            while lab.nodes()[0]["state"] != "DEGRADED":  # a breaker makes pauses between the faults
                await client.post("/v1/chat/completions", json=body)
                await asyncio.sleep(0.1)
        assert "jobs in a row failed" in lab.nodes()[0]["degraded"]
        node.script = answer
        await asyncio.to_thread(lab.wait_for_node, node.node_id, state="ONLINE")


async def test_instant_empty_answers_gain_nothing(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node, http_client(lab) as client:
        await ready(lab, node)
        before = lab.wait_for_node(node.node_id)
        node.script = Mind(say=lambda job: [])
        for number in range(25):
            await client.post("/v1/chat/completions", json=chat(number, stream=number % 2 == 0))
        after = lab.show(node.node_id)
        assert (after["reliability"], after["outcomes"]) == (70, 0)
        assert after["measured"]["credited_tok_s"] == before["measured"]["credited_tok_s"]
        assert after["measured"]["first_output_ms"] == {}
