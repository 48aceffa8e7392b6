"""Twenty nodes that die, stall, lie and flap, two hundred clients that leave, stall and hurry: nothing lost or doubled."""

import asyncio
import json
import os

import httpx
import psutil
import pytest

from tests.support.chaos import ChaosNode, client, table
from tests.support.coordinator import CoordinatorProcess, brain_coord, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SEED = int(os.environ.get("BRAIN_CHAOS_SEED", "1"))
NODES, CLIENTS = 20, 200
CONFIG = """
[deadlines]
accept_s = 1.5
first_output_s = 3.0
between_events_s = 3.0
whole_s = 20.0
[queue]
wait_s = 5.0
[streams]
stall_s = 2.0
[join]
heartbeat_s = 2.0
token_required = false
[breaker]
first_open_s = 0.5
max_open_s = 2.0
"""


def memory_mib(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


async def test_chaos(tmp_path, capsys):
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    with CoordinatorProcess(tmp_path / "coord", "--config", str(config)) as coordinator:
        key = coordinator.key("paid")
        nodes = [ChaosNode(coordinator.url, number, SEED) for number in range(NODES)]
        await asyncio.gather(*(node.raw.join() for node in nodes))
        for node in nodes:
            await asyncio.to_thread(coordinator.wait_for_node, node.raw.node_id, basis="coordinator-timed")
        before = memory_mib(coordinator.program.pid)
        for node in nodes:
            node.calm = False
        flapping = [asyncio.create_task(node.flap()) for node in nodes[::2]]
        seen = await asyncio.gather(
            *(client(coordinator.url, key, "brain/mock", SEED, number) for number in range(CLIENTS))
        )
        for task in flapping:
            task.cancel()
        await asyncio.gather(*flapping, return_exceptions=True)
        for node in nodes:
            node.calm = True

        def busy() -> list[dict[str, object]]:
            return [node for node in coordinator.nodes() if node["active"] != 0]

        await asyncio.to_thread(eventually, lambda: not busy(), 30.0)
        async with httpx.AsyncClient(
            base_url=coordinator.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        ) as http:
            lines = [json.loads(line) for line in (await http.get("/v1/receipts")).text.splitlines()]
        after = memory_mib(coordinator.program.pid)
        receipts = {line["body"]["request_id"]: line["body"] for line in lines}
        exported = tmp_path / "receipts.jsonl"
        exported.write_text("".join(json.dumps(line) + "\n" for line in lines))
        verified = await asyncio.to_thread(brain_coord, "receipts", "verify", str(exported))
        await asyncio.gather(*(node.raw.leave() for node in nodes))
        log = coordinator.program.output
        code = await asyncio.to_thread(coordinator.program.stop)

    facts = {"receipts": len(lines), "memory before, MiB": f"{before:.0f}", "memory after, MiB": f"{after:.0f}"}
    with capsys.disabled():
        print("\n" + table(seen, nodes, facts))  # noqa: T201 — the table is for whoever reads the run
    assert [fault for each in seen for fault in each.faults] == []
    assert {each.ending for each in seen} <= {"answer", "error", "error event", "left", "cut"}
    assert len(receipts) == len(lines), "a request with two receipts"
    assert verified.returncode == 0, verified.stdout
    for each in seen:
        if each.ending == "answer":
            assert receipts[each.request_id]["outcome"] == "completed"
            assert receipts[each.request_id]["tokens"]["completion_billed"] <= 30 * 8, "a lie about usage was billed"
        elif each.ending == "error event":
            assert receipts[each.request_id]["outcome"] in ("incomplete", "failed", "deadline")
    assert sum(each.ending == "answer" for each in seen) > CLIENTS // 4, "too little survived to mean anything"
    assert after < before + 64, "memory did not come back"
    assert "Traceback" not in log
    assert code == 0
