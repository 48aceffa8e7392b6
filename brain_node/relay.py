"""One job between a slot and an engine: the request goes in as it came, the answer's bytes go out as they come."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Literal, Protocol

import aiohttp
import structlog

from brain_node.contract.limits import FRAME_BYTES
from brain_node.contract.messages import Accepted, End, EndCause, Head, Job, encode
from brain_node.link.slot import Send
from brain_node.model_name import AnswerRename, rename_request

log = structlog.get_logger(__name__)

ENGINE_KEEPALIVE_S: Final = 3.0
"""Idle time of pooled connections to engines; vLLM closes its side after 5 s, and reuse must never race with that."""
ENGINE_CONNECT_S: Final = 5.0
IDLE_RACE_S: Final = 1.0
"""A reused connection that breaks within this long was closed by the engine while idle; later, the engine had the job."""

JOB_PATHS: Final = frozenset(
    "/v1/" + name
    for name in (
        "chat/completions",
        "completions",
        "responses",
        "messages",
        "messages/count_tokens",
        "embeddings",
        "rerank",
        "score",
        "audio/transcriptions",
        "audio/translations",
    )
)
"""What a coordinator may ask of an engine. Everything else an engine offers (loading adapters, administration) stays
the operator's own, whatever a coordinator says."""

Outcome = Literal["ok", "engine_error", "engine_lost", "engine_refused", "timeout", "cancelled"]
"""How a job ended for the engine: `engine_error` is an HTTP status of 500 or above, `cancelled` any end we chose."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine listens."""

    base_url: str
    """Without a slash at its end; job paths (`/v1/…`) are appended."""
    api_key: str | None
    served_name: str
    """The model's name at the engine; when it is not the catalog id, requests and answers are renamed."""


class Lease(Protocol):
    """One engine, held for one job."""

    endpoint: Endpoint

    def progress(self) -> None:
        """The engine sent something just now. Called for every chunk: it must be as cheap as an assignment."""

    def finished(self, outcome: Outcome) -> None:
        """The job is over, called exactly once."""


class Engines(Protocol):
    """Who gives engines to jobs."""

    def claim(self, job: Job) -> Lease | Literal["no_engine", "draining", "busy"]:
        """A ready engine with room for the job, or why there is none; never waits."""


class Relay:
    """Runs jobs on engines.

    Args:
        engines: who gives engines to jobs.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self.frame_bytes = FRAME_BYTES
        """Largest frame sent; the coordinator may ask for less in `welcome`."""

    async def close(self) -> None:
        """Close the connections to engines."""
        for session in (self._pooled, self._fresh):
            if session is not None:
                await session.close()
        self._pooled = self._fresh = None

    async def run(self, job: Job, body: Sequence[bytes], send: Send) -> End:
        """Run one job: `accepted`, then `head` and the answer's bytes; the caller sends the returned `end`.

        Raises:
            ConnectionClosed: the slot is gone; the engine's work is ended.
            CancelledError: the job was cancelled; the engine's work is ended.
        """
        if job.path not in JOB_PATHS:
            log.warning("path_not_allowed", job=job.id, path=job.path)
            return _end(job, "bad_job")
        lease = self._engines.claim(job)
        if isinstance(lease, str):
            return _end(job, lease)
        outcome: Outcome = "cancelled"
        cause: EndCause | None = None
        try:
            await send(encode(Accepted(id=job.id)))
            async with asyncio.timeout(job.deadline_s):
                outcome = await self._exchange(job, body, lease, send)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            outcome = cause = "engine_refused"
        except TimeoutError:
            outcome = cause = "timeout"
        except (aiohttp.ClientError, OSError) as error:
            log.warning("engine_lost", job=job.id, model=job.model, reason=type(error).__name__)
            outcome = cause = "engine_lost"
        finally:
            lease.finished(outcome)
        return _end(job, cause)

    async def _exchange(self, job: Job, body: Sequence[bytes], lease: Lease, send: Send) -> Outcome:
        endpoint = lease.endpoint
        rename = None
        if endpoint.served_name != job.model:
            body = (rename_request(b"".join(body), endpoint.served_name),)
            rename = AnswerRename(endpoint.served_name, job.model)
        response = await self._post(endpoint, job.path, body)
        try:
            lease.progress()
            await send(encode(_head(job, response)))
            await _pump(response.content, send, lease.progress, self.frame_bytes, rename)
            return "engine_error" if response.status >= 500 else "ok"
        finally:
            # After a whole answer this changes nothing; before its end it closes the connection, which ends the work.
            response.close()

    async def _post(self, endpoint: Endpoint, path: str, body: Sequence[bytes]) -> aiohttp.ClientResponse:
        if self._pooled is None:
            self._pooled = _http(keepalive_timeout=ENGINE_KEEPALIVE_S)
        headers = {"Content-Type": "application/json", "Content-Length": str(sum(map(len, body)))}
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        url = endpoint.base_url + path
        now = asyncio.get_running_loop().time
        reused, started = SimpleNamespace(yes=False), now()
        try:
            return await self._pooled.post(
                url, data=_payload(body), headers=headers, allow_redirects=False, trace_request_ctx=reused
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not reused.yes or now() - started > IDLE_RACE_S or isinstance(error, aiohttp.ClientConnectorError):
                raise
            lost = error
        # The engine closed an idle connection just as it was picked: it never saw the job. Once more, on a new one.
        if self._fresh is None:
            self._fresh = _http(force_close=True)
        try:
            return await self._fresh.post(url, data=_payload(body), headers=headers, allow_redirects=False)
        except aiohttp.ClientConnectorError:
            # The engine died instead, so whether it had begun is not known: not a plain refusal.
            raise lost from None


def _http(**connector: Any) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_mark_reused)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, **connector),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=ENGINE_CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        # No Accept-Encoding: the engine need not compress. One that does all the same is decoded, as its Content-Encoding
        # goes no further than here.
        skip_auto_headers=("Accept-Encoding", "User-Agent"),
        trust_env=False,  # engines are on loopback, where a proxy variable has no business
        trace_configs=[trace],
    )


async def _mark_reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.yes = True


def _payload(body: Sequence[bytes]) -> bytes | AsyncIterator[bytes]:
    """A small body in one piece; a large one as the frames it came in, never joined into another copy."""
    if sum(map(len, body)) <= FRAME_BYTES:
        return b"".join(body)

    async def frames() -> AsyncIterator[bytes]:
        for frame in body:
            yield frame

    return frames()


def _head(job: Job, response: aiohttp.ClientResponse) -> Head:
    retry_after = response.headers.get("Retry-After")
    return Head(
        id=job.id,
        status=response.status,
        content_type=response.headers.get("Content-Type", "application/json")[:256],
        retry_after=retry_after[:64] if retry_after else None,
    )


async def _pump(
    content: aiohttp.StreamReader, send: Send, progress: Callable[[], None], limit: int, rename: AnswerRename | None
) -> None:
    """Pass the answer on. This is the hot loop: one await in, one await out, nothing else for a chunk of usual size."""
    read = content.readany
    while chunk := await read():
        progress()
        if rename is not None:
            chunk = rename.feed(chunk)
        if len(chunk) <= limit:
            if chunk:
                await send(chunk)
            continue
        for start in range(0, len(chunk), limit):
            await send(chunk[start : start + limit])
    if rename is not None and (rest := rename.end()):
        await send(rest)


def _end(job: Job, cause: EndCause | None) -> End:
    return End(id=job.id, ok=cause is None, cause=cause)
