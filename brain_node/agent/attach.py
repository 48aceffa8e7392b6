"""A server that already runs as an engine source: `--engine attach`; watched, never started, stopped or changed."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import aiohttp
import orjson
import structlog

from brain_node.agent.source import Changed, Places, details_of, one_line
from brain_node.contract.messages import EngineClaim, Job, ModelOffer
from brain_node.engine.probe import whole_answer
from brain_node.link.url import is_loopback
from brain_node.relay.lease import Endpoint, Lease

log = structlog.get_logger(__name__)

DEFAULT_SLOTS: Final = 8
CHECK_S: Final = 5.0
CHECK_TIMEOUT_S: Final = 5.0
MISSES: Final = 3
"""Checks missed in a row before the models are taken out of the offer; an unfinished answer counts as life."""


class EngineUrlError(ValueError):
    """The address of the running server is not usable."""


def engine_base(url: str) -> str:
    """The server's base address, with or without the `/v1` that people paste.

    Raises:
        EngineUrlError: it is no http(s) address.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.username or parts.query)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # a port or a name that cannot be one
        good = False
    if not good:
        raise EngineUrlError(f"`{url}` is no address of a server: write http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class AttachSource:
    """Offers models of an OpenAI-compatible server.

    Args:
        url: its address.
        serve: catalog id → name at the server.
        api_key: its key, if it wants one.
        slots: most jobs at a time for each model.
    """

    kind = "attach"
    uses_cards = False

    def __init__(
        self, url: str, serve: Mapping[str, str], api_key: str | None = None, slots: int | None = None
    ) -> None:
        self._base = engine_base(url)
        self._serve = dict(serve)
        self._key = api_key
        self._slots = slots or DEFAULT_SLOTS
        self._places = {
            model: Places(Endpoint(self._base, api_key, name, several=True), self._slots)
            for model, name in serve.items()
        }
        self._ready: dict[str, int | None] = {}
        self._cause: str | None = "not checked yet"
        self._misses = 0
        self._version: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._since = time.monotonic()

    @property
    def version(self) -> str | None:
        """What the server says at `/version`, as vLLM does."""
        return self._version

    async def start(self, changed: Changed) -> None:
        """Begin to watch the server."""
        self._task = asyncio.create_task(self._watch(changed))

    async def stop(self) -> None:
        """Stop watching; the server is left as it is."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def offers(self) -> Sequence[ModelOffer]:
        """The models that the server listed at the last check."""
        return [
            ModelOffer(id=model, loaded=True, context=self._ready[model], slots=self._slots)
            for model in self._serve
            if model in self._ready
        ]

    def claims(self) -> Sequence[EngineClaim]:
        """Every model, ready or with the reason why not."""
        elapsed_s = round(time.monotonic() - self._since, 1)
        return [
            EngineClaim(model=model, state="ready", elapsed_s=elapsed_s)
            if model in self._ready
            else EngineClaim(model=model, state="failed", cause=one_line(self._cause or ""), elapsed_s=elapsed_s)
            for model in self._serve
        ]

    def details(self) -> list[dict[str, Any]]:
        """The same for people."""
        return details_of(self.claims())

    def claim(self, job: Job) -> Lease | Literal["no_engine", "busy"]:
        """The server, when it serves the job's model."""
        if job.model not in self._ready:
            return "no_engine"
        return self._places[job.model].take() or "busy"

    async def _watch(self, changed: Changed) -> None:
        loopback = is_loopback(urlsplit(self._base).hostname or "")
        timeout = aiohttp.ClientTimeout(total=CHECK_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        # Proxy variables are for the way to the coordinator; an engine is near.
        async with aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=False) as http:
            if not loopback:
                log.warning("engine_not_local", url=self._base, note="requests leave this machine on their way to it")
            while True:
                before = (dict(self._ready), self._cause)
                try:
                    await self._check(http)
                except Exception:  # one bad look must not be the last one
                    log.exception("watch_failed")
                if (self._ready, self._cause) != before:
                    self._since = time.monotonic()
                    log.info("engine_state", engine=self._base, ready=sorted(self._ready), cause=self._cause)
                    changed()
                await asyncio.sleep(CHECK_S)

    async def _check(self, http: aiohttp.ClientSession) -> None:
        try:
            # Jobs follow no redirect: what stands behind one is not what they would reach.
            async with http.get(self._base + "/v1/models", allow_redirects=False) as response:
                listed = orjson.loads(await whole_answer(response)) if response.status == 200 else None
                status, elsewhere = response.status, response.headers.get("Location")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self._missed(_cause_of(error))
            return
        names = _listed(listed)
        if names is None:
            hint = ": set BRAIN_NODE_ENGINE_KEY" if status in (401, 403) else ""
            if 300 <= status < 400 and elsewhere:
                hint = f", a redirect to {one_line(elsewhere)}: give the address that it leads to"
            self._missed(f"the server answers /v1/models with HTTP {status}{hint}")
            return
        if self._version is None:
            self._version = await _version(http, self._base)
        self._misses = 0
        self._ready = {model: names[name] for model, name in self._serve.items() if name in names}
        missing = sorted(name for name in self._serve.values() if name not in names)
        self._cause = f"the server lists no model {', '.join(missing)}; it has {', '.join(names)}" if missing else None

    def _missed(self, cause: str) -> None:
        self._misses += 1
        # A busy server may be late with its answers; one that refuses connections is gone.
        if self._misses >= MISSES or not self._ready or "refused" in cause:
            self._ready, self._cause = {}, cause


def _cause_of(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the server's name cannot be resolved"
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
        return f"TLS with the server failed: {error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connection refused: nothing listens at the server's address"
    if isinstance(error, TimeoutError):
        return f"no answer within {CHECK_TIMEOUT_S:.0f} s"
    return f"the answer is not usable ({type(error).__name__})"


def _listed(body: Any) -> dict[str, int | None] | None:
    """Model names in a `/v1/models` answer, with the context length where it is told."""
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return None
    names: dict[str, int | None] = {}
    for entry in data:
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            length = entry.get("max_model_len")
            names[entry["id"]] = length if isinstance(length, int) and not isinstance(length, bool) else None
    return names


async def _version(http: aiohttp.ClientSession, base: str) -> str | None:
    try:
        async with http.get(base + "/version", allow_redirects=False) as response:
            body = orjson.loads(await whole_answer(response)) if response.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
    version = body.get("version") if isinstance(body, dict) else None
    return one_line(version) if isinstance(version, str) else None
