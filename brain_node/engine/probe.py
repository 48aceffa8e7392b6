"""Asks a running engine how it is: cheap routes for readiness and progress, one real token as proof of life.

The address is the one the engine was given, never a name to resolve and never through a proxy.
"""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import aiohttp
import orjson

from brain_node.engine.argv import HOST

_LARGEST_ANSWER: Final = 4_000_000

_WATCHED: Final = (
    b"vllm:generation_tokens_total",
    b"vllm:prompt_tokens_total",
    b"vllm:kv_cache_usage_perc",
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:num_preemptions_total",
)
"""Counters that move whenever the engine's core does something; a core that hangs leaves them as they were."""

Marks = tuple[float, ...]


class CanaryResult(StrEnum):
    """What came of asking for one token."""

    ANSWERED = "answered"  # a token came
    REFUSED = "refused"  # the engine answered, but does not take this kind of request
    SILENT = "silent"  # no answer in time, or an error of the server's own


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One look at an engine."""

    healthy: bool
    """The health route answered 200 in time."""
    serves: bool | None
    """Whether it lists the model asked for; `None` when it did not say."""
    marks: Marks | None
    """Its progress counters; `None` when it did not say."""
    other_models: tuple[str, ...] = ()
    """What it lists instead."""


class EngineProbe:
    """Asks one engine; like a job it follows no redirect."""

    def __init__(self, port: int, api_key: str, model_id: str, timeout_s: float, host: str = HOST) -> None:
        self._base = f"http://{host}:{port}"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._model_id = model_id
        self._timeout_s = timeout_s
        # A connection each: one kept open to a hung server would answer for a fresh one.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(trust_env=False, connector=connector)

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()

    async def look(self, *, starting: bool) -> ProbeResult:
        """One look; while it starts the served models matter, later its progress."""
        healthy = await self._get("/health") is not None
        if starting and not healthy:
            return ProbeResult(healthy=False, serves=None, marks=None)
        names = _names(await self._get("/v1/models")) if starting else None
        metrics = None if starting else await self._get("/metrics")
        serves = None if names is None else self._model_id in names
        return ProbeResult(healthy, serves, None if metrics is None else _marks(metrics), names or ())

    async def canary(self, limit_s: float) -> CanaryResult:
        """Ask for one token; leaving in time ends the work in the engine."""
        body = {"model": self._model_id, "prompt": "1", "max_tokens": 1, "temperature": 0}
        try:
            timeout = aiohttp.ClientTimeout(total=limit_s)
            async with self._session.post(
                f"{self._base}/v1/completions",
                json=body,
                headers=self._headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                text = await whole_answer(answer)
                if answer.status >= 500:
                    return CanaryResult.SILENT
                if answer.status != 200:
                    return CanaryResult.REFUSED
                return CanaryResult.ANSWERED if _has_choice(text) else CanaryResult.SILENT
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError):
            return CanaryResult.SILENT

    async def _get(self, path: str) -> bytes | None:
        try:
            timeout = aiohttp.ClientTimeout(total=self._timeout_s)
            async with self._session.get(
                f"{self._base}{path}", headers=self._headers, timeout=timeout, allow_redirects=False
            ) as answer:
                return await whole_answer(answer) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError):
            return None


async def whole_answer(answer: aiohttp.ClientResponse) -> bytes:
    """The whole body of an engine's answer.

    Raises:
        aiohttp.ClientPayloadError: it does not end; somebody else may answer on the port.
    """
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > _LARGEST_ANSWER:
            raise aiohttp.ClientPayloadError("the answer is too large for an engine's")
    return bytes(body)


def _names(body: bytes | None) -> tuple[str, ...] | None:
    try:
        return tuple(str(model["id"]) for model in orjson.loads(body or b"")["data"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _has_choice(body: bytes) -> bool:
    try:
        return bool(orjson.loads(body)["choices"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


def _marks(metrics: bytes) -> Marks | None:
    sums = dict.fromkeys(_WATCHED, 0.0)
    seen = False
    for line in metrics.splitlines():
        name = line.partition(b"{")[0].partition(b" ")[0]
        if name in sums:
            try:
                sums[name] += float(line.rsplit(b" ", 1)[1])
            except (ValueError, IndexError):
                continue
            seen = True
    return tuple(sums.values()) if seen else None
