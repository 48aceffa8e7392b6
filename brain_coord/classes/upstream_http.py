"""HTTP towards upstreams: one pool of connections, proxies by the usual variables but never for loopback."""

import asyncio
import io
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import (  # type: ignore[attr-defined] # there on every system; typeshed has them for some
    getproxies_environment,
    proxy_bypass_environment,
)

import aiohttp

from brain_coord import __version__
from brain_coord.classes.upstream import UpstreamSpec

KEEP_ALIVE_S: Final = 4.0
"""Idle connections are dropped after this: engines close theirs after 5 s, and a request must not meet that moment."""

LARGE_BODY_BYTES: Final = 256 * 1024
"""Above this a body is written in pieces, so that no other stream waits for it."""

ANTHROPIC_VERSION: Final = "2023-06-01"
HTTP_PROXIES: Final = ("http://", "https://")
USER_AGENT: Final = f"brain-coord/{__version__}"


class UnsupportedProxy(aiohttp.ClientError):
    """The environment names a proxy that does not speak HTTP, such as a SOCKS one. It is not gone around in silence."""


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_of(url: str) -> str | None:
    """The proxy for an address by `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; never one for loopback."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass_environment(parts.hostname or ""):
        return None
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


@dataclass(slots=True)
class Progress:
    """How far a request has come. `connected` is set once it has a connection."""

    connected: asyncio.Event = field(default_factory=asyncio.Event)
    reused: bool = False


class UpstreamHttp:
    """The connections to all upstreams. Answers are not unpacked here, redirects not followed, nothing is timed here."""

    def __init__(self) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_connected)
        trace.on_connection_reuseconn.append(_reused)
        self._pooled = self._session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S), trace)
        self._fresh = self._session(aiohttp.TCPConnector(limit=0, force_close=True), trace)

    @staticmethod
    def _session(connector: aiohttp.TCPConnector, trace: aiohttp.TraceConfig) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def request(
        self,
        method: str,
        url: str,
        spec: UpstreamSpec,
        headers: Mapping[str, str],
        body: bytes | None = None,
        progress: Progress | None = None,
        *,
        fresh: bool = False,
    ) -> aiohttp.ClientResponse:
        """The answer's head. `fresh` uses a connection of its own. Raises `aiohttp.ClientError` and `OSError`."""
        more: dict[str, Any] = {} if spec.trust is None else {"ssl": spec.trust}
        proxy = proxy_of(url)
        if proxy is not None and not proxy.startswith(HTTP_PROXIES):
            raise UnsupportedProxy
        session = self._fresh if fresh else self._pooled
        return await session.request(
            method,
            url,
            data=io.BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body,
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **_key(spec), **headers},
            allow_redirects=False,
            proxy=proxy,
            trace_request_ctx=progress or Progress(),
            **more,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._pooled.close()
        await self._fresh.close()


def _key(spec: UpstreamSpec) -> dict[str, str]:
    if spec.auth == "x-api-key":  # its own requests, such as for the list of models, need a version too
        return {"x-api-key": spec.api_key or "", "anthropic-version": ANTHROPIC_VERSION}
    return {} if spec.api_key is None else {"Authorization": f"Bearer {spec.api_key}"}


async def _connected(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionCreateEndParams) -> None:
    context.trace_request_ctx.connected.set()


async def _reused(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused = True
    context.trace_request_ctx.connected.set()
