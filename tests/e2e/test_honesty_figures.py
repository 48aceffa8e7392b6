"""Nodes that lie about figures, or send none that are: what is credited is what the coordinator's own clock bore out."""

import asyncio
import json
from itertools import pairwise

import pytest

from tests.support.honesty import MODEL, chat, http_client, ready
from tests.support.lab import Lab
from tests.support.minds import Mind
from tests.support.models import SENTENCE, build_known_text_model
from tests.support.raw_node import RawNode

SLOW = Mind(pause_s=0.012)


def credited(lab, node):
    return lab.wait_for_node(node.node_id)["measured"]["credited_tok_s"][MODEL]


async def test_a_node_that_holds_back_and_bursts_is_credited_like_its_honest_twin(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=SLOW) as honest,
        RawNode(lab.url, models=[MODEL], script=Mind(pause_s=0.012, hold=True)) as liar,
    ):
        await ready(lab, honest, liar)
        # By the plain formula it would be credited with twenty times as much.
        assert credited(lab, liar) < 1.5 * credited(lab, honest)


async def test_inflated_usage_is_worth_nothing_beside_peers_of_the_model(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=SLOW) as one,
        RawNode(lab.url, models=[MODEL], script=SLOW) as two,
        RawNode(lab.url, models=[MODEL], script=Mind(pause_s=0.012, inflate=4)) as liar,
        http_client(lab) as client,
    ):
        await ready(lab, one, two, liar)
        words = 100
        script = Mind(pause_s=0.012, say=lambda job: ["quiet "] * words)
        one.script = two.script = script
        liar.script = Mind(pause_s=0.012, say=lambda job: ["quiet "] * words, inflate=4)
        for node in (one, two, liar):
            for number in range(2):
                asked = chat(number, node=node.node_id, stream=True)
                assert (await client.post("/v1/chat/completions", json=asked)).status_code == 200
        honest = min(credited(lab, one), credited(lab, two))
        assert credited(lab, liar) < 1.5 * honest
        shown = lab.show(liar.node_id)
        assert shown["measured"]["reported_token_factor"][MODEL] < 0.5
        assert lab.show(one.node_id)["measured"]["reported_token_factor"][MODEL] > 0.9


async def test_tokens_that_the_text_cannot_hold_are_neither_billed_nor_counted(lab):
    async with RawNode(lab.url, models=[MODEL], script=SLOW) as node, http_client(lab) as client:
        await ready(lab, node)
        node.script = Mind(say=lambda job: ["yes"], inflate=100_000)
        reply = (await client.post("/v1/chat/completions", json=chat())).json()
        receipt = (await client.get(f"/v1/receipts/{reply['brain']['receipt']}")).json()["body"]
    assert receipt["tokens"]["completion_reported"] == 100_000
    assert receipt["tokens"]["completion_billed"] == receipt["tokens"]["completion_counted"] <= 11
    assert receipt["tokens"]["counted_by"] == "text bound"


async def test_the_operators_own_tokenizer_counts_exactly_and_the_receipt_says_so(tmp_path):
    model = build_known_text_model(tmp_path / "tokenizers" / MODEL)
    with Lab(tmp_path / "coord", tokenizers=str(tmp_path / "tokenizers")) as lab:
        async with RawNode(lab.url, models=[MODEL], script=SLOW) as node, http_client(lab) as client:
            await ready(lab, node)
            for stream in (False, True):
                node.script = Mind(say=lambda job: [SENTENCE], inflate=150)
                reply = await client.post("/v1/chat/completions", json=chat(stream=stream))
                text = reply.text if not stream else reply.text.split("data: ")[-2]
                receipt_id = json.loads(text)["brain"]["receipt"]
                tokens = (await client.get(f"/v1/receipts/{receipt_id}")).json()["body"]["tokens"]
                assert tokens["completion_reported"] == 150
                assert tokens["completion_billed"] == len(model.words)
                assert tokens["counted_by"] == "tokenizer"


async def test_pongs_sent_ahead_of_their_pings_do_not_bring_a_node_nearer(lab):
    async with RawNode(lab.url, models=[MODEL], script=SLOW) as node:
        await ready(lab, node)
        numbers = [message["n"] for message in node.received if message["type"] == "ping"]
        assert len({later - earlier for earlier, later in pairwise(numbers)}) == len(numbers) - 1
        before = lab.wait_for_node(node.node_id)["measured"]
        for number in (0, 1, 2, numbers[-1] + 1, numbers[-1] + 2):
            await node.link.send(json.dumps({"type": "pong", "n": number}))
        await node.heartbeat()
        after = lab.wait_for_node(node.node_id, state="ONLINE")["measured"]
        assert after["rtt_samples"] - before["rtt_samples"] <= 1


BAD = [float("nan"), float("inf"), float("-inf"), -1, 1e308, "12", True, None, [], {}]


@pytest.mark.case("E-05")
async def test_reports_that_are_no_numbers_are_refused_logged_once_and_never_averaged_in(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=SLOW) as bad,
        RawNode(lab.url, models=[MODEL], script=SLOW) as good,
        http_client(lab) as client,
    ):
        await ready(lab, bad, good)
        before = lab.wait_for_node(bad.node_id)["measured"]
        for _ in range(3):
            for value in BAD:
                gpu = {"name": "card", "free_bytes": value, "total_bytes": value, "utilization_percent": value}
                more = {"rtt_ms": value, "tok_s": value, "queue": value}
                if value == value and value not in (float("inf"), float("-inf")):
                    await bad.heartbeat(telemetry=[{**gpu, **more}], active=value, **more)
                # The bare words NaN and Infinity, which are no JSON at all.
                await bad.link.send(json.dumps({"type": "heartbeat", "active": value, "draining": False}))
        after = await asyncio.to_thread(lab.wait_for_node, bad.node_id, state="ONLINE")
        assert after["measured"]["credited_tok_s"] == before["credited_tok_s"]
        assert after["reliability"] == 70
        raw = (await client.get("/v1/nodes")).text
        assert "NaN" not in raw
        assert "Infinity" not in raw
        for node in (bad, good):
            assert (await client.post("/v1/chat/completions", json=chat(node=node.node_id))).status_code == 200
        complaints = [line for line in lab.program.lines if "claims dropped" in line]
        assert complaints
        named = [field for line in complaints for field in json.loads(line)["fields"]]
        assert len(named) == len(set(named)), "each is logged once a session, however often it comes"


@pytest.mark.case("E-05")
async def test_an_offer_that_is_no_offer_keeps_the_one_before(lab):
    async with RawNode(lab.url, models=[MODEL], script=SLOW) as node:
        await ready(lab, node)
        for slots in (-1, 10**9, "many", None, 1.5):
            await node.link.send(json.dumps({"type": "offer", "offer": {"models": [{"id": MODEL}], "slots": slots}}))
        offer = {"models": [{"id": MODEL, "loaded": True}], "slots": 3, "ask_usd_per_1m": "cheap", "region": 7}
        await node.link.send(json.dumps({"type": "offer", "offer": offer}))
        after = await asyncio.to_thread(lab.wait_for_node, node.node_id, slots=3)
        assert (after["ask_usd_per_1m"], after["region"]) == (None, None)


@pytest.mark.case("E-08")
async def test_a_nodes_clock_says_nothing_about_its_life_and_its_speed(lab):
    async with RawNode(lab.url, models=[MODEL], script=SLOW, heartbeat_s=1000) as node, http_client(lab) as client:
        await ready(lab, node)
        for skew_s in (3 * 3600, -600, 3600, -3600, 0):
            stamp = 1_800_000_000 + skew_s
            await node.heartbeat(time=stamp, timestamp=stamp, sent_at=stamp, clock=stamp)
            body = (await client.post("/v1/chat/completions", json=chat(node=node.node_id, stream=True))).text
            receipt_id = json.loads(body.split("data: ")[-2])["brain"]["receipt"]
            timings = (await client.get(f"/v1/receipts/{receipt_id}")).json()["body"]["timings"]
            assert timings["measured_by"] == "coordinator"
            assert all(value >= 0 for name, value in timings.items() if name != "measured_by" and value is not None)
            seen = await asyncio.to_thread(lab.wait_for_node, node.node_id)
            assert seen["state"] in ("ONLINE", "BUSY")
        assert seen["measured"]["rtt_ms"] < 60_000  # the skews are minutes and hours


@pytest.mark.case("E-03")
async def test_new_unmeasured_and_slow_nodes_get_work_beside_a_fast_one(lab):
    async with (
        RawNode(lab.url, models=[MODEL], slots=2, script=SLOW) as fast,
        RawNode(lab.url, models=[MODEL], slots=2, script=Mind(pause_s=0.05)) as slow,
        http_client(lab) as client,
    ):
        await ready(lab, fast, slow)
        fresh = RawNode(lab.url, models=[MODEL], slots=2, script=SLOW)
        await fresh.join()
        decision = (await client.post("/v1/route", json=chat())).json()["node"]
        if fresh.node_id in decision["rejections"]:
            assert decision["rejections"][fresh.node_id] == ["not yet benchmarked"]
        await ready(lab, fresh)
        for node in (fast, slow, fresh):
            node.script = Mind(pause_s=0.02)
        replies = await asyncio.gather(*(client.post("/v1/chat/completions", json=chat(n)) for n in range(40)))
        assert {reply.status_code for reply in replies} == {200}
        assert all(node.jobs for node in (fast, slow, fresh))
        await fresh.leave()


async def test_claimed_memory_and_cards_change_no_rank(lab):
    huge = {
        "os": "Linux",
        "vram_mib": 10**7,
        "gpus": [{"name": "B300", "total_bytes": 10**13, "free_bytes": 10**13}] * 8,
    }
    async with (
        RawNode(lab.url, models=[MODEL], script=SLOW, report=huge) as boaster,
        RawNode(lab.url, models=[MODEL], script=SLOW, report={"os": "Linux", "vram_mib": 1000}) as small,
        http_client(lab) as client,
    ):
        await ready(lab, boaster, small)
        decision = (await client.post("/v1/route", json=chat())).json()["node"]
        assert [each["node_id"] for each in decision["ranked"]] == [boaster.node_id]
        assert "VRAM 1 GB" in decision["rejections"][small.node_id][0]
        score = decision["ranked"][0]
        # Alone it is its own measure, whatever it claims.
        assert (score["capability"], score["reputation"]) == (1.0, 0.7)
        public = next(each for each in lab.nodes() if each["node_id"] == boaster.node_id)
        assert public["reported"]["vram_mib"] == 10**7
        assert "vram_mib" not in public["measured"]
