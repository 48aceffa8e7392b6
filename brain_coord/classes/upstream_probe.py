"""Ask idle upstreams for their list of models, so that one which is away is known before a request finds out.

Real traffic comes first: an upstream that answered lately, or is answering, is not asked. That a list of models comes
says nothing about generating, so it ends a pause only when the upstream could not be reached before.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final

import aiohttp
import orjson
import structlog

from brain_coord.classes.target import TargetFault
from brain_coord.classes.unpack import Damaged, unpacker_of
from brain_coord.classes.upstream import Upstream
from brain_coord.classes.upstream_http import UpstreamHttp
from brain_coord.classes.upstream_target import fault_of

log = structlog.get_logger("brain.upstream")

TICK_S: Final = 0.5
ANSWER_S: Final = 10.0
AGAIN_S: Final = 2.0
"""After a probe that could not reach an upstream: soon, so that it is known to be away."""

LIST_BYTES: Final = 4 * 1024 * 1024
UNREACHED: Final = frozenset({"connection_refused", "unreachable", "connection_lost", "tls", "proxy", "probe_timeout"})


@dataclass(slots=True)
class UpstreamProber:
    """Probes whatever upstreams there are, one at a time each."""

    http: UpstreamHttp
    upstreams: Callable[[], Iterable[Upstream]]
    _due: dict[str, float] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        """For ever."""
        try:
            while True:
                self._start_due(monotonic())
                await asyncio.sleep(TICK_S)
        finally:
            for task in tuple(self._tasks.values()):
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _start_due(self, now: float) -> None:
        known = {upstream.spec.name: upstream for upstream in self.upstreams()}
        for name in self._due.keys() - known.keys():
            del self._due[name]
        for name, upstream in known.items():
            if name not in self._tasks and now >= self._due.get(name, 0.0) and is_idle(upstream, now):
                task = asyncio.create_task(self._probe(upstream))
                self._tasks[name] = task
                task.add_done_callback(partial(self._probed, name))

    def _probed(self, name: str, _: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)

    async def _probe(self, upstream: Upstream) -> None:
        before = upstream.last_fault
        reached = await probe(self.http, upstream)
        every_s = upstream.spec.probe_s
        delay_s = every_s if reached else min(every_s, AGAIN_S)
        self._due[upstream.spec.name] = monotonic() + delay_s * random.uniform(0.9, 1.1)  # noqa: S311
        if upstream.last_fault != before:
            log.warning("upstream probe", upstream=upstream.spec.name, fault=upstream.last_fault)


def is_idle(upstream: Upstream, now: float) -> bool:
    """Whether nothing but a probe can tell how it is."""
    every_s = upstream.spec.probe_s
    if every_s <= 0 or upstream.active > 0:
        return False
    breaker = upstream.health.breaker
    if not breaker.allows(now) or (breaker.reopens_at is not None and breaker.cause not in UNREACHED):
        return False
    return upstream.last_ok_at is None or now - upstream.last_ok_at >= every_s or not upstream.health.clean(now)


async def probe(http: UpstreamHttp, upstream: Upstream) -> bool:
    """Ask once; whether it could be reached."""
    spec, health = upstream.spec, upstream.health
    ticket = health.breaker.begin(monotonic())
    if ticket is None:
        return True
    try:
        async with asyncio.timeout(ANSWER_S):
            response = await http.request("GET", spec.base_url + "/models", spec, {"Accept": "application/json"})
            try:
                status, body = response.status, await _read(response)
            finally:
                response.close()
    except TimeoutError:
        cause, message = "probe_timeout", f"no list of models within {ANSWER_S:g} s"
    except (aiohttp.ClientError, OSError) as error:
        fault: TargetFault = fault_of(error, sent=False)
        cause, message = fault.cause, str(fault)
    except BaseException:
        health.dropped(ticket)
        raise
    else:
        now = monotonic()
        upstream.last_fault = None if status < 400 or status == 404 else f"answers {status} when asked for its models"
        if status in (401, 403):
            health.refused_us(now, status)
        elif status < 400:
            health.misconfigured = None
            upstream.listed, upstream.last_ok_at = _names(body), now
        if health.breaker.cause in UNREACHED and status not in (401, 403):
            health.succeeded(ticket)
        else:
            health.dropped(ticket)
        return True
    upstream.last_fault = message
    health.failed(ticket, monotonic(), cause, spread=random.random())  # noqa: S311
    return False


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The list, or nothing where it cannot be had."""
    body = bytearray()
    while (piece := await response.content.readany()) and len(body) <= LIST_BYTES:
        body += piece
    try:
        unpack = unpacker_of(response.headers.get("Content-Encoding", ""))
        if unpack is None:
            return bytes(body)
        unpack.feed(bytes(body))
        body.clear()
        while (piece := unpack.take()) and len(body) <= LIST_BYTES:
            body += piece
    except Damaged:
        return b""
    return bytes(body)


def _names(body: bytes) -> frozenset[str] | None:
    """Model names in a `/v1/models` answer, `None` where it is none."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    entries = data.get("data") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return None
    return frozenset(entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))
