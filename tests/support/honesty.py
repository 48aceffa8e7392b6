"""What the tests of honesty share: a model, requests for it, and waiting until its nodes are measured."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from tests.support.coordinator import eventually
from tests.support.lab import Lab
from tests.support.raw_node import RawNode

MODEL = "qwen/qwen2.5-1.5b-instruct"
T = TypeVar("T")


def chat(number: int = 0, **more: Any) -> dict[str, Any]:
    """A PUBLIC greedy request, another one for each number."""
    messages = [{"role": "user", "content": f"tell me about day {number}"}]
    return {"model": MODEL, "messages": messages, "temperature": 0, **more}


async def ready(lab: Lab, *nodes: RawNode) -> None:
    """Wait until each node has been measured, and forget the jobs that took."""
    for node in nodes:
        await asyncio.to_thread(lab.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
        node.jobs.clear()


async def until(check: Callable[[], T], timeout_s: float = 30.0) -> T:
    """The first truthy answer of a check, made beside the event loop."""
    return await asyncio.to_thread(eventually, check, timeout_s)


def http_client(lab: Lab, key: str | None = None) -> httpx.AsyncClient:
    """A client with a key that may do a great deal."""
    headers = {"Authorization": f"Bearer {key or lab.key('paid')}"}
    return httpx.AsyncClient(base_url=lab.url, headers=headers, trust_env=False, timeout=30)
