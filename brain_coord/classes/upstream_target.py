"""An upstream as a target: one HTTP request for one job, its answer passed on as it comes."""

import asyncio
from errno import ECONNREFUSED
from time import monotonic
from typing import Final

import aiohttp

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices
from brain_coord.classes.reply_name import ReplyName
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, ReplyHead, Take, TargetFault, hand_on
from brain_coord.classes.unpack import Damaged, Unpacker, unpacker_of
from brain_coord.classes.upstream import Offer, Upstream, UpstreamSpec
from brain_coord.classes.upstream_http import Progress, UnsupportedProxy, UpstreamHttp
from brain_coord.measure.speed import StreamSample
from brain_coord.routing.vocabulary import ResourceClass

IDLE_RACE_S: Final = 1.0
"""A reused connection that breaks within this time, without one byte of an answer, was closed before it was used."""


class UpstreamTarget:
    """One model of one upstream, ranked for a request."""

    node_id = None

    def __init__(
        self,
        http: UpstreamHttp,
        upstream: Upstream,
        offer: Offer,
        resource_class: ResourceClass,
        samples: ClassSamples,
    ) -> None:
        self._http = http
        self._upstream = upstream
        self._offer = offer
        self._samples = samples
        self.resource_class = resource_class

    @property
    def name(self) -> str:
        """The operator's name for the upstream."""
        return self._upstream.spec.name

    @property
    def model(self) -> str:
        """As the upstream calls it, so that a receipt tells what really answered."""
        return self._offer.served

    @property
    def health(self) -> TargetHealth:
        """Of the upstream."""
        return self._upstream.health

    @property
    def prices(self) -> Prices:
        """Of this model."""
        return self._offer.prices

    async def start(self, job: JobSpec) -> "UpstreamExchange":
        """Take a slot and send the request; returns once there is a connection.

        Raises:
            TargetFault: no slot, or no connection.
        """
        upstream, offer = self._upstream, self._offer
        if upstream.free <= 0:
            raise TargetFault("no_free_slot", "another request took the last slot", ran=False, blame=False)
        upstream.reserve()
        rename = None if offer.served == offer.model else ReplyName(offer.served, offer.model)
        exchange = UpstreamExchange(self._http, upstream, job, rename)
        try:
            await exchange.connected()
        except BaseException:
            await exchange.close()
            raise
        return exchange

    def outcome(
        self,
        result: str,
        *,
        first_output_ms: float | None,
        total_ms: float | None,
        stream: StreamSample | None = None,
    ) -> None:
        """Only the class learns from it: an upstream is known by its prices and its health."""
        del first_output_ms
        if result != "completed":
            self._samples.failed()
            return
        self._upstream.last_ok_at = monotonic()
        if stream is None or not stream.empty:
            self._samples.completed(total_ms)


class UpstreamExchange:
    """One request at one upstream. Holds one of its slots until it is closed."""

    def __init__(self, http: UpstreamHttp, upstream: Upstream, job: JobSpec, rename: ReplyName | None) -> None:
        self._upstream = upstream
        self._rename = rename
        self._unpack: Unpacker | None = None
        self._progress = Progress()
        self._response: aiohttp.ClientResponse | None = None
        self._closed = False
        spec = upstream.spec
        headers = {"Content-Type": "application/json", "Accept": "*/*", "X-Request-Id": job.job_id, **dict(job.headers)}
        url = spec.url_of(job.path) + (f"?{job.query}" if job.query else "")
        self._task = asyncio.get_running_loop().create_task(_send(http, spec, url, headers, job.body, self._progress))

    async def connected(self) -> None:
        """Wait for the connection."""
        waiting = asyncio.ensure_future(self._progress.connected.wait())
        try:
            await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done() and not self._progress.connected.is_set():
            self._task.result()

    async def head(self) -> ReplyHead:
        """The upstream's status."""
        response = self._response = await asyncio.shield(self._task)
        headers = response.headers
        if 300 <= response.status < 400:
            raise TargetFault("redirected", "the upstream redirects; configure its final address", ran=False)
        try:
            self._unpack = unpacker_of(headers.get("Content-Encoding", ""))
        except Damaged as error:
            raise TargetFault("protocol", f"the upstream compressed its answer unasked: {error}", ran=True) from None
        content_type = headers.get("Content-Type", "application/octet-stream")
        return ReplyHead(response.status, content_type, headers.get("Retry-After"))

    async def pass_on(self, take: Take) -> None:
        """Hand the answer on as it comes."""
        await hand_on(self._read, take)

    async def _read(self) -> bytes | None:
        while True:
            piece = await self._plain() if self._unpack is None else await self._unpacked(self._unpack)
            if self._rename is None:
                return piece or None
            if not piece:
                return self._rename.end() or None
            if renamed := self._rename.feed(piece):
                return renamed

    async def _plain(self) -> bytes:
        assert self._response is not None
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise TargetFault("connection_lost", "the upstream's connection broke off", ran=True) from error

    async def _unpacked(self, unpack: Unpacker) -> bytes:
        """The next bytes of an answer that was compressed unasked; nothing at its end."""
        try:
            while not (piece := unpack.take()):
                came = await self._plain()
                if not came:
                    unpack.end()
                    return b""
                unpack.feed(came)
        except Damaged as error:
            raise TargetFault("protocol", f"the upstream's compressed answer is damaged: {error}", ran=True) from None
        return piece

    async def close(self) -> None:
        """Hang up, which ends the work at the upstream; a connection whose answer was read to its end is kept."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait((self._task,))
            if not self._task.cancelled() and self._task.exception() is None:
                self._task.result().close()
        finally:
            self._upstream.release()


async def _send(
    http: UpstreamHttp, spec: UpstreamSpec, url: str, headers: dict[str, str], body: bytes, progress: Progress
) -> aiohttp.ClientResponse:
    """Send the request; once more on a fresh connection when a reused one turns out to have been closed already."""
    began = monotonic()
    try:
        return await http.request("POST", url, spec, headers, body, progress)
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
        if not (progress.reused and monotonic() - began < IDLE_RACE_S):
            raise fault_of(error, sent=progress.connected.is_set()) from error
    except (aiohttp.ClientError, OSError) as error:
        raise fault_of(error, sent=progress.connected.is_set()) from error
    progress.reused = False
    try:
        return await http.request("POST", url, spec, headers, body, progress, fresh=True)
    except (aiohttp.ClientError, OSError) as error:
        raise fault_of(error, sent=not isinstance(error, aiohttp.ClientConnectorError)) from error


def fault_of(error: Exception, *, sent: bool) -> TargetFault:
    """What went wrong with a request, without addresses.

    Args:
        error: of the HTTP client.
        sent: whether there was a connection, so that the upstream may have begun the work.
    """
    if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
        return TargetFault("proxy", "the proxy to the upstream refused the connection", ran=False)
    if isinstance(error, UnsupportedProxy):
        return TargetFault(
            "proxy", "the proxy set for the upstream is not an HTTP proxy; only those are used", ran=False
        )
    if isinstance(error, aiohttp.ClientSSLError):
        return TargetFault("tls", "the upstream's certificate could not be verified", ran=False)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return TargetFault("unreachable", "the upstream's name could not be resolved", ran=False)
    if isinstance(error, aiohttp.ClientConnectorError):
        if error.errno == ECONNREFUSED:
            return TargetFault("connection_refused", "the upstream refused the connection", ran=False)
        return TargetFault("unreachable", "the upstream could not be reached", ran=False)
    if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientResponseError):
        return TargetFault("protocol", "the upstream's answer is not HTTP", ran=True)
    return TargetFault("connection_lost", "the upstream's connection broke off before it answered", ran=sent)
