"""Decode speed of one real engine, measured by three at once: the coordinator, vLLM's own `/metrics`, and a direct client."""

import asyncio
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import orjson

from tests.support.coordinator import CoordinatorProcess
from tests.support.node import NodeProcess

MODEL = "huggingfacetb/smollm2-135m-instruct"
TOKENS = 96
LATENCY = "vllm:inter_token_latency_seconds"


@dataclass
class RealRig:
    """A coordinator, and a node whose vLLM serves SmolLM2-135M-Instruct on the CPU."""

    coordinator: CoordinatorProcess
    node: NodeProcess
    key: str

    def engine(self) -> httpx.AsyncClient:
        """A client that asks the engine itself."""
        root = self.node.engine_root()
        line = root.cmdline()
        secret = root.environ().get("VLLM_API_KEY", "")
        url = f"http://127.0.0.1:{line[line.index('--port') + 1]}"
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        return httpx.AsyncClient(base_url=url, trust_env=False, timeout=240, headers=headers)

    def gateway(self) -> httpx.AsyncClient:
        """A client of the coordinator."""
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.coordinator.url, trust_env=False, timeout=240, headers=headers)


@contextmanager
def real_rig(folder: Path, model: Path) -> Iterator[RealRig]:
    """Both processes, once the model is loaded and benchmarked."""
    catalog = folder / "catalog.toml"
    catalog.write_text(
        f'[[model]]\nid = "{MODEL}"\nname = "SmolLM2"\nrepo = "{model}"\nrevision = "local"\nparams_b = 0.135\n'
        f'context = 2048\nmin_vram_mib = 512\nlicense = "apache-2.0"\ngated = false\ndevice = "any"\nargs = []\n'
    )
    with (
        CoordinatorProcess(folder / "coord", "--open-join", "--catalog", str(catalog)) as coordinator,
        NodeProcess(coordinator.url, folder / "node", "--catalog", str(catalog), "--model", MODEL) as node,
    ):
        coordinator.wait_for_node(timeout_s=300, state="ONLINE", basis="coordinator-timed", loaded=[MODEL])
        yield RealRig(coordinator, node, coordinator.key())
        node.program.stop(90)


def request(number: int, model: str) -> dict[str, Any]:
    """An answer of fixed length; no two prompts are alike, so nothing comes from a cache."""
    text = f"Write a long story about day {number} of a journey, and the number {os.urandom(3).hex()}."
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": TOKENS,
        "temperature": 0.7,
        "ignore_eos": True,
    }


async def streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Tokens a second as a client sees them between the first and the last event with text; and the last event."""
    first = last = 0.0
    usage, final = 0, {}
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if not line.startswith("data: {"):
                continue
            final = orjson.loads(line[6:])
            usage = (final.get("usage") or {}).get("completion_tokens", usage)
            if any(choice["delta"].get("content") for choice in final["choices"]):
                last = monotonic()
                first = first or last
    return (usage - 1) / (last - first), final


async def own_latency(engine: httpx.AsyncClient) -> tuple[float, float]:
    """Seconds between tokens and their number so far, as vLLM counts them."""
    text = (await engine.get("/metrics")).text
    rows = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(LATENCY)]

    def total(suffix: str) -> float:
        return sum(float(value) for name, value in rows if name.startswith(LATENCY + suffix))

    return total("_sum"), total("_count")


@dataclass(frozen=True)
class Rates:
    """Tokens per second by who measured."""

    coordinator: list[float]
    vllm: list[float]
    """Of the same answers."""
    direct: list[float]
    """Of answers in between, asked of the engine itself."""

    @property
    def beside_vllm(self) -> float:
        """The coordinator's figure as a multiple of vLLM's."""
        return statistics.median(a / b for a, b in zip(self.coordinator, self.vllm, strict=True))

    @property
    def beside_direct(self) -> float:
        """The coordinator's figure as a multiple of a direct client's."""
        return statistics.median(self.coordinator) / statistics.median(self.direct)

    def lines(self) -> list[str]:
        """What a person reads."""
        spread = max(self.coordinator) / min(self.coordinator)
        return [
            f"coordinator ÷ vLLM's own /metrics, the same answers: {self.beside_vllm:.2f}",
            f"coordinator ÷ a direct client, answers in turn:      {self.beside_direct:.2f}",
            f"fastest ÷ slowest of {len(self.coordinator)} answers through the coordinator: {spread:.2f}",
        ]


async def measure(rig: RealRig, repeats: int = 5) -> Rates:
    """Answers through the coordinator and straight from the engine in turn."""
    rates = Rates([], [], [])
    async with rig.engine() as engine, rig.gateway() as gateway:
        served = (await engine.get("/v1/models")).json()["data"][0]["id"]
        await streamed(engine, request(0, served))
        for number in range(1, repeats + 1):
            seconds, count = await own_latency(engine)
            _, final = await streamed(gateway, request(number, MODEL))
            receipt = (await gateway.get(f"/v1/receipts/{final['brain']['receipt']}")).json()["body"]
            after_s, after = await own_latency(engine)
            rates.coordinator.append(receipt["timings"]["decode_tok_s"])
            rates.vllm.append((after - count) / (after_s - seconds))
            rates.direct.append((await streamed(engine, request(-number, served)))[0])
            await asyncio.sleep(0)
    return rates
