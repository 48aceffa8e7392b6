"""A real vLLM behind a real node: exact text, an engine killed in mid-stream, a coordinator that goes away."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from openai import APIError, AsyncOpenAI

from tests.support.coordinator import CoordinatorProcess, eventually
from tests.support.engine_fixtures import engine_env, known_text_model  # noqa: F401
from tests.support.models import KnownTextModel
from tests.support.node import KNOWN_ID, NodeProcess, write_catalog

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CHAT = {"model": KNOWN_ID, "messages": [{"role": "user", "content": "Speak."}]}
READY_S = 240.0


class Rig:
    """A coordinator and a node with the known-text model, and a client's view of them."""

    def __init__(self, coordinator: CoordinatorProcess, node: NodeProcess) -> None:
        self.coordinator = coordinator
        self.node = node
        self.key = coordinator.key()

    def client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.coordinator.url}/v1", api_key=self.key, max_retries=0, timeout=120)

    def ready(self) -> dict[str, object]:
        return self.coordinator.wait_for_node(
            timeout_s=READY_S, state="ONLINE", basis="coordinator-timed", loaded=[KNOWN_ID]
        )


@pytest.fixture(scope="module")
def rig(
    tmp_path_factory: pytest.TempPathFactory,
    engine_env: object,  # noqa: F811
    known_text_model: KnownTextModel,  # noqa: F811
) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("rig")
    catalog = write_catalog(folder / "catalog.toml", known_text_model)
    with CoordinatorProcess(folder / "coord", "--open-join", "--catalog", str(catalog)) as coordinator:
        options = ("--catalog", str(catalog), "--model", KNOWN_ID)
        with NodeProcess(coordinator.url, folder / "node", *options) as node:
            rig = Rig(coordinator, node)
            node.program.wait_for("linked")
            rig.ready()
            yield rig
            assert node.program.stop(90) == 0
            assert [process for process in psutil.process_iter(["cmdline"]) if str(folder) in _line(process)] == [
                process for process in psutil.process_iter(["cmdline"]) if process.pid == coordinator.program.pid
            ]


def _line(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or ())


async def text_of(rig: Rig, **options: object) -> tuple[str, object]:
    async with rig.client() as client:
        stream = await client.chat.completions.create(**CHAT, stream=True, **options)
        chunks = [chunk async for chunk in stream]
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices), chunks[-1]


async def test_the_python_client_gets_the_exact_text(rig: Rig, known_text_model: KnownTextModel):  # noqa: F811
    text, last = await text_of(rig)
    assert text == known_text_model.sentence
    assert last.brain["class"] == "NATIVE_NETWORK"
    async with rig.client() as client:
        whole = await client.chat.completions.create(**CHAT)
    assert whole.choices[0].message.content == known_text_model.sentence
    assert whole.usage.completion_tokens == known_text_model.answer_tokens


def test_the_node_client_gets_the_exact_text(rig: Rig, known_text_model: KnownTextModel, openai_node: Path):  # noqa: F811
    script = openai_node / "ask.mjs"
    shutil.copy(Path(__file__).parent / "ask.mjs", script)
    done = subprocess.run(
        ["node", str(script), f"{rig.coordinator.url}/v1", KNOWN_ID],
        env={**os.environ, "OPENAI_API_KEY": rig.key},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [known_text_model.sentence, known_text_model.sentence]


async def test_an_engine_killed_in_mid_stream_is_one_error_event_and_comes_back_by_itself(
    rig: Rig,
    known_text_model: KnownTextModel,  # noqa: F811
):
    root = rig.node.engine_root()
    group = os.getpgid(root.pid)
    received: list[str] = []
    async with rig.client() as client:
        stream = await client.chat.completions.create(
            **CHAT, stream=True, max_tokens=2000, extra_body={"ignore_eos": True}
        )
        with pytest.raises(APIError) as caught:
            async for chunk in stream:
                received.append(chunk.choices[0].delta.content or "" if chunk.choices else "")
                if len(received) == 20:
                    root.kill()
    assert caught.value.body["code"] == "incomplete"
    assert known_text_model.text(2000).startswith("".join(received))

    def group_members() -> list[int]:
        members = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process.pid)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return members

    await asyncio.to_thread(eventually, lambda: not group_members(), 30.0)
    await asyncio.to_thread(eventually, lambda: KNOWN_ID not in rig.coordinator.nodes()[0]["loaded"], 30.0)
    await asyncio.to_thread(rig.ready)
    text, _ = await text_of(rig)
    assert text == known_text_model.sentence


async def test_a_coordinator_that_was_away_finds_the_same_node_again(rig: Rig, known_text_model: KnownTextModel):  # noqa: F811
    before = await asyncio.to_thread(rig.ready)
    assert await asyncio.to_thread(rig.coordinator.program.stop) == 0
    status = await asyncio.to_thread(rig.node.status)
    assert status["node_id"] == before["node_id"]
    await asyncio.sleep(20)  # the time is the point: long enough that the node's first attempts fail
    await asyncio.to_thread(rig.coordinator.restart)
    after = await asyncio.to_thread(rig.ready)
    assert after["node_id"] == before["node_id"]
    assert after["measured"]["benchmarks"] == before["measured"]["benchmarks"]
    assert after["reliability"] == before["reliability"]
    text, _ = await text_of(rig)
    assert text == known_text_model.sentence
