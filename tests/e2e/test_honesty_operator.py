"""The operator's commands about nodes, work and decisions, with a coordinator running and without."""

import asyncio
import csv
import io
import json

import pytest

from tests.support.coordinator import brain_coord
from tests.support.honesty import MODEL, chat, http_client, ready, until
from tests.support.minds import Mind
from tests.support.raw_node import RawNode


async def command(lab, *arguments):
    return await asyncio.to_thread(lab.command, *arguments)


async def plain(lab, *arguments):
    return await asyncio.to_thread(brain_coord, *arguments, "--data-dir", str(lab.data_dir))


async def test_show_says_each_term_and_each_event(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node, http_client(lab) as client:
        await ready(lab, node)
        for number in range(3):
            await client.post("/v1/chat/completions", json=chat(number))
        shown = await command(lab, "nodes", "show", node.node_id[2:8].lower())
        assert shown["node_id"] == node.node_id
        assert (shown["state"], shown["reason"]) in {("ONLINE", "ready"), ("BUSY", "runs 1 job(s)")}
        assert sum(term["points"] for term in shown["score"]["terms"]) == pytest.approx(shown["reliability"], abs=0.51)
        customers = [event for event in shown["score"]["events"] if event["kind"] == "customer"]
        assert [event["result"] for event in customers] == ["completed"] * 3
        assert shown["address"] == "127.0.0.1"
        text = (await plain(lab, "nodes", "show", node.node_id)).stdout
        assert node.node_id in text
        assert "start" in text
        assert "uptime" in text
    assert await asyncio.to_thread(lab.program.stop) == 0
    remembered = await command(lab, "nodes", "show", node.node_id)
    assert (remembered["state"], remembered["reliability"]) == ("OFFLINE", shown["reliability"])
    assert len(remembered["score"]["events"]) == len(shown["score"]["events"])


async def test_an_unknown_or_ambiguous_name_gets_help(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node, RawNode(lab.url, models=[MODEL]):
        await ready(lab, node)
        wrong = node.node_id[:-1] + ("0" if node.node_id[-1] != "0" else "1")
        done = await plain(lab, "nodes", "show", wrong)
        assert done.returncode == 2
        assert f"Did you mean {node.node_id}" in done.stderr
        assert "could be" in (await plain(lab, "nodes", "show", "N-")).stderr


async def test_a_ban_ends_session_and_work_until_it_is_lifted(lab):
    node = RawNode(lab.url, models=[MODEL], script=Mind())
    await node.join()
    await ready(lab, node)
    banned = await command(lab, "nodes", "ban", node.node_id, "--reason", "sent rubbish")
    assert (banned["state"], banned["banned"]) == ("OFFLINE", "sent rubbish")
    await until(lambda: any(each["type"] == "refused" for each in node.received))
    told = next(each for each in node.received if each["type"] == "refused")
    assert (told["code"], told["retry"]) == ("banned", False)
    await node.leave()
    again = RawNode(lab.url, models=[MODEL], identity=node.identity)
    assert (await again.join())["code"] == "banned"
    await again.leave()
    assert (await command(lab, "nodes", "unban", node.node_id))["banned"] is None
    back = RawNode(lab.url, models=[MODEL], script=Mind(), identity=node.identity)
    assert (await back.join())["type"] == "welcome"
    await back.leave()


async def test_a_drained_node_is_told_keeps_its_jobs_and_gets_no_new_ones(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node, http_client(lab) as client:
        await ready(lab, node)
        node.script = Mind(pause_s=0.1)
        before = len(node.jobs)  # the benchmark's
        running = asyncio.create_task(client.post("/v1/chat/completions", json=chat()))
        await until(lambda: len(node.jobs) > before)
        drained = await command(lab, "nodes", "drain", node.node_id)
        assert (drained["state"], drained["draining"]) == ("DRAINING", True)
        await until(lambda: any(each["type"] == "drain" for each in node.received))
        refused = await client.post("/v1/chat/completions", json=chat(1))
        assert refused.status_code == 503
        assert "draining" in refused.json()["error"]["message"]
        undrained = asyncio.create_task(command(lab, "nodes", "undrain", node.node_id))
        assert (await running).status_code == 200, "running jobs go on"
        assert (await undrained)["draining"] is False
        await asyncio.wait_for(node.link.wait_closed(), 20)  # the way a node's drain ends is a new session


async def test_decisions_hold_without_a_coordinator_and_over_its_restart(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node:
        await ready(lab, node)
    assert await asyncio.to_thread(lab.program.stop) == 0
    assert (await command(lab, "nodes", "drain", node.node_id))["draining"]
    assert (await command(lab, "nodes", "trust", node.node_id))["trusted"]
    await asyncio.to_thread(lab.restart)
    async with RawNode(lab.url, models=[MODEL], script=Mind(), identity=node.identity):
        seen = await asyncio.to_thread(lab.wait_for_node, node.node_id, state="DRAINING")
        assert seen["trusted"]
        assert not (await command(lab, "nodes", "untrust", node.node_id))["trusted"]


async def test_a_node_hears_why_requests_passed_it_by(lab):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind()) as one,
        RawNode(lab.url, models=[MODEL], script=Mind()) as two,
        http_client(lab) as client,
    ):
        await ready(lab, one, two)
        await command(lab, "nodes", "drain", two.node_id)
        for number in range(5):
            assert (await client.post("/v1/chat/completions", json=chat(number))).status_code == 200

        def skips():
            told = [each for each in two.received if each["type"] == "notice" and each["code"] == "skipped"]
            return told[-1]["data"]["skipped"] if told else {}

        await until(lambda: skips().get("draining") == 5)
        assert (await command(lab, "nodes", "show", two.node_id))["skips"]["draining"] == 5
        assert (await client.get(f"/v1/nodes/{two.node_id}")).json()["skips"]["draining"] == 5


async def test_the_ledger_sums_up_by_node_and_key_in_every_form(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node, http_client(lab) as client:
        await ready(lab, node)
        node.script = Mind(say=lambda job: ["quiet "] * 10)
        for number in range(3):
            await client.post("/v1/chat/completions", json=chat(number))
    rows = await command(lab, "ledger")
    by_side = {row["side"]: row for row in rows}
    assert set(by_side) == {"node", "key"}
    assert by_side["node"]["id"] == node.node_id
    for row in rows:
        assert (row["requests"], row["completion_tokens"], row["model"]) == (3, 30, MODEL)
        assert row["work_units"] == pytest.approx(1.54e9 * 30 / 2**20, rel=0.1)
        assert (row["amount_usd"], row["unpriced_requests"]) == (None, 3)
    table = list(csv.DictReader(io.StringIO((await plain(lab, "ledger", "--csv")).stdout)))
    assert [row["id"] for row in table] == [row["id"] for row in rows]
    assert table[0]["amount_usd"] == ""
    assert "UNKNOWN" in (await plain(lab, "ledger")).stdout
    assert await command(lab, "ledger", "--to", "2001-01-01") == []
    assert (await plain(lab, "ledger", "--from", "yesterday")).returncode == 2


async def test_a_decision_comes_out_again_from_its_receipt_alone(lab, tmp_path):
    async with (
        RawNode(lab.url, models=[MODEL], script=Mind()) as one,
        RawNode(lab.url, models=[MODEL], script=Mind()) as two,
        http_client(lab) as client,
    ):
        await ready(lab, one, two)
        reply = (await client.post("/v1/chat/completions", json=chat())).json()
    receipt_id = reply["brain"]["receipt"]
    assert await command(lab, "route", "--receipt", receipt_id) == {
        "receipt": receipt_id,
        "same": True,
        "complete": True,
        "differences": [],
    }
    envelope = (await command(lab, "receipts", "show", receipt_id)) | {}
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(envelope))
    good = await plain(lab, "route", "--receipt", str(file))
    assert (good.returncode, "the same decision" in good.stdout) == (0, True)

    ranked = envelope["body"]["decision"]["node"]["decision"]["ranked"]
    ranked[0]["total"], ranked[1]["total"] = 0.1, 0.9
    file.write_text(json.dumps(envelope))
    bad = await plain(lab, "route", "--receipt", str(file))
    assert bad.returncode == 1
    assert "ranked[0].total" in bad.stdout
    assert (await plain(lab, "route", "--receipt", "r-unknown")).returncode == 2
    file.write_text("{}")
    assert (await plain(lab, "route", "--receipt", str(file))).returncode == 65
    assert (await plain(lab, "route")).returncode == 2
