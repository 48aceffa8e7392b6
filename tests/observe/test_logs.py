"""Logs: one JSON object a line off a terminal, ids on every line of a request, never a word of a prompt."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.coordinator import CoordinatorProcess
from tests.support.raw_node import RawJob, RawNode, answer, chunk

PROMPT = "prompt-word-that-no-log-may-hold"
REPLY = "reply-word-that-no-log-may-hold"


async def broken(job: RawJob) -> None:
    """Begin an answer and break off in the middle of it."""
    if job.request.get("ignore_eos"):
        await answer(job)
        return
    await job.accept()
    await job.head()
    await job.event(chunk(REPLY))
    await job.drop()


async def nonsense(job: RawJob) -> None:
    """Answer with what is no answer."""
    await job.accept()
    await job.head(status=500, content_type="text/plain")
    await job.send(f"failed on {PROMPT}".encode())
    await job.end()


@pytest.mark.slow
async def test_no_log_line_holds_a_word_of_prompt_or_answer(tmp_path: Path):
    with CoordinatorProcess(tmp_path / "coord", "--open-join", "--log-level", "debug") as coordinator:
        key = coordinator.key()
        async with (
            RawNode(coordinator.url) as node,
            httpx.AsyncClient(base_url=coordinator.url, trust_env=False, timeout=60) as client,
        ):
            await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
            headers = {"authorization": f"Bearer {key}"}
            body = {"model": "brain/mock", "messages": [{"role": "user", "content": PROMPT}], "stream": True}
            for script in (answer, broken, nonsense):
                node.script = script
                await client.post("/v1/chat/completions", json=body, headers=headers)
            await client.post("/v1/chat/completions", content=f'{{"model": "{PROMPT}', headers=headers)
            await client.post("/v1/chat/completions", json={**body, "messages": PROMPT}, headers=headers)
            await client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer bk-wrong"})
            await client.post(f"/v1/route?path={PROMPT}", json=body, headers=headers)
        coordinator.program.stop()
        lines = [line for line in coordinator.program.lines if line.startswith("{")]
    text = "\n".join(lines)
    for secret in (PROMPT, REPLY, key, "bk-wrong"):
        assert secret not in text
    records = [json.loads(line) for line in lines]
    assert all({"event", "level", "timestamp"} <= set(record) for record in records)
    requests = [record for record in records if record["event"] == "request"]
    assert len(requests) >= 3
    for record in requests:
        assert record["request_id"].startswith("req-")
        assert record["decision"].startswith("d-")
        assert record["receipt"] is None or record["receipt"][2:] == record["decision"][2:]


def test_what_libraries_say_has_the_form_of_every_other_line():
    said = subprocess.run(
        [sys.executable, "-c", LIBRARY_SPEAKS], capture_output=True, text=True, check=True, timeout=60
    ).stderr
    (first, second) = [json.loads(line) for line in said.splitlines()]
    assert (first["event"], first["level"], first["logger"]) == ("no [Errno 98]", "error", "some.library")
    assert "ZeroDivisionError" in second["exception"]


LIBRARY_SPEAKS = """
import logging
from brain_coord.observe.logs import configure_logs
configure_logs(as_json=True, level="info")
logging.getLogger("some.library").info("unheard")
logging.getLogger("some.library").error("no %s", "[Errno 98]")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("some.library").exception("fault")
"""
