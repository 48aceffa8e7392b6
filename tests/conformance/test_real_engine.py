"""The same clients with a real vLLM behind a real node: the exact text in every form that it serves, and its own refusals."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.support.coordinator import eventually
from tests.support.engine_fixtures import engine_env, known_text_model  # noqa: F401
from tests.support.models import KnownTextModel
from tests.support.node import KNOWN_ID, NodeProcess, write_catalog
from tests.support.npm import npm_folder
from tests.support.served import Served
from tests.support.venvs import client_python

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parent / "clients"
MESSAGES = [{"role": "user", "content": "Speak."}]
READY_S = 240.0


class Rig:
    """A coordinator, a node with the known-text model, and what its clients should hear."""

    def __init__(self, served: Served, node: NodeProcess, model: KnownTextModel) -> None:
        self.served = served
        self.node = node
        self.said = [model.sentence, model.answer_tokens]

    def client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.served.url}/v1", api_key=self.served.secret, max_retries=0, timeout=120)

    def run(self, *command: str | Path) -> list:
        """What a client program heard."""
        argv = [*map(str, command), f"{self.served.url}/v1", self.served.secret, KNOWN_ID]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    def engine_requests(self) -> float:
        """Requests that the engine itself says are running."""
        line = self.node.engine_root().cmdline()
        port = line[line.index("--port") + 1]
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
        running = [row for row in metrics.splitlines() if row.startswith("vllm:num_requests_running")]
        return sum(float(row.rsplit(" ", 1)[1]) for row in running)


@pytest.fixture(scope="module")
def rig(
    tmp_path_factory: pytest.TempPathFactory,
    engine_env: object,  # noqa: F811
    known_text_model: KnownTextModel,  # noqa: F811
) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("forms")
    catalog = write_catalog(folder / "catalog.toml", known_text_model)
    with Served(folder / "coord", catalog=str(catalog)) as served:
        options = ("--catalog", str(catalog), "--model", KNOWN_ID)
        with NodeProcess(served.url, folder / "node", *options) as node:
            served.wait_for_node(timeout_s=READY_S, state="ONLINE", basis="coordinator-timed", loaded=[KNOWN_ID])
            yield Rig(served, node, known_text_model)
            assert node.program.stop(90) == 0


async def test_chat_and_legacy_completions(rig: Rig):
    async with rig.client() as client:
        whole = await client.chat.completions.create(model=KNOWN_ID, messages=MESSAGES)
        assert [whole.choices[0].message.content, whole.usage.completion_tokens] == rig.said
        pair = await client.chat.completions.create(model=KNOWN_ID, messages=MESSAGES, n=2, logprobs=True, seed=2**40)
        assert [choice.message.content for choice in pair.choices] == [rig.said[0]] * 2
        assert pair.choices[1].logprobs.content[0].token == rig.said[0].split(" ")[0]
        said = ["", ""]
        stream = await client.chat.completions.create(
            model=KNOWN_ID,
            messages=MESSAGES,
            n=2,
            stream=True,
            temperature=1e-7,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            for choice in chunk.choices:
                said[choice.index] += choice.delta.content or ""
        assert said == [rig.said[0]] * 2
        assert chunk.usage.completion_tokens == 2 * rig.said[1]
        old = await client.completions.create(model=KNOWN_ID, prompt="Speak.", max_tokens=3)
        assert old.choices[0].text == " ".join(rig.said[0].split(" ")[:3])


async def test_responses(rig: Rig):
    async with rig.client() as client:
        whole = await client.responses.create(model=KNOWN_ID, input="Speak.")
        assert [whole.output_text, whole.usage.output_tokens] == rig.said
        events = [event async for event in await client.responses.create(model=KNOWN_ID, input="Speak.", stream=True)]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert [text, events[-1].response.usage.output_tokens] == rig.said
    assert events[-1].type == "response.completed"
    brain = events[-1].model_extra["brain"]
    receipt = await rig.served.receipt(brain["receipt"])
    assert receipt["tokens"]["completion_billed"] == rig.said[1]


async def test_messages_with_anthropics_client(rig: Rig):
    python = await asyncio.to_thread(client_python, "anthropic", "anthropic>=2.14,<3")
    *heard, refused = await asyncio.to_thread(rig.run, python, CLIENTS / "real_anthropic.py")
    assert heard == [[*rig.said, "end_turn"]] * 2
    assert "100000" in refused


async def test_langchain(rig: Rig):
    python = await asyncio.to_thread(client_python, "langchain", "langchain-openai>=1.7,<2")
    assert await asyncio.to_thread(rig.run, python, CLIENTS / "real_langchain.py") == [rig.said] * 2


async def test_openai_for_node(rig: Rig):
    folder = await asyncio.to_thread(npm_folder, "openai-7", openai="^7.0.0")
    script = folder / "real.mjs"
    script.write_bytes((CLIENTS / "real_openai.mjs").read_bytes())
    heard = await asyncio.to_thread(rig.run, "node", script)
    assert heard == [rig.said, rig.said, [rig.said[0], None], rig.said]


async def test_a_request_that_the_model_cannot_serve_gets_the_engines_own_400(rig: Rig):
    async with rig.client() as client:
        with pytest.raises(BadRequestError) as error:
            await client.chat.completions.create(model=KNOWN_ID, messages=MESSAGES, max_tokens=100_000, stream=True)
        assert "max_model_len" in error.value.body["message"]
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        with pytest.raises(BadRequestError) as error:
            await client.chat.completions.create(model=KNOWN_ID, messages=[{"role": "user", "content": [picture]}])
        assert error.value.body["message"]
        with pytest.raises(NotFoundError) as missing:
            await client.embeddings.create(model=KNOWN_ID, input="Speak.")
        assert missing.value.body["message"] == f"nothing that serves {KNOWN_ID} offers /v1/embeddings"


@pytest.mark.case("C-08")
async def test_a_client_that_leaves_stops_the_engine(rig: Rig):
    async with rig.client() as client:
        stream = await client.chat.completions.create(
            model=KNOWN_ID, messages=MESSAGES, stream=True, max_tokens=2000, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            break
        assert rig.engine_requests() == 1
        await stream.close()
    await asyncio.to_thread(eventually, lambda: not rig.engine_requests(), 20.0)
    await asyncio.to_thread(rig.served.wait_for_node, active=0)
