"""A Brain Node that is linked to another coordinator, as a target: one hop to that one, which has the last word on its slots."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import aiohttp
import orjson

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.prices import Prices, by_ask
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import JobSpec, ReplyHead, Take, TargetFault, hand_on
from brain_coord.cluster.frames import DATA, END, FRAMES, HEAD, BadFrame, FrameReader
from brain_coord.fleet.node import Elsewhere, Node
from brain_coord.fleet.registry import Registry
from brain_coord.measure.speed import StreamSample
from brain_coord.routing.vocabulary import ResourceClass

TRAILER_S: Final = 1.0

NOT_OURS: Final = frozenset({403, 404})
"""A coordinator that answers so takes our proof for a stranger's, or is of another version; it never looks at a job."""


class Hops(Protocol):
    """The way to the other coordinators."""

    async def job(self, where: Elsewhere, body: bytes, claims: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Hand a job over."""

    def event(self, where: Elsewhere, **members: Any) -> None:
        """Tell what was seen of a node, some time soon; need not arrive."""

    def unreachable(self, replica: str, cause: str) -> None:
        """A coordinator is not reached at its address."""

    def open(self, replica: str, exchange: "RemoteExchange") -> None:
        """A job began at a coordinator."""

    def closed(self, replica: str, exchange: "RemoteExchange") -> None:
        """It ended."""


class RemoteTarget:
    """One node elsewhere that was ranked for a request.

    What the node did is measured and counted where its link is; this side only says how the request ended.
    """

    def __init__(
        self,
        hops: Hops,
        registry: Registry,
        node: Node,
        where: Elsewhere,
        model: str,
        resource_class: ResourceClass,
        samples: ClassSamples,
        health: TargetHealth,
    ) -> None:
        self.health = health
        self.model = model
        self.resource_class = resource_class
        self._hops = hops
        self._registry = registry
        self._node = node
        self._where = where
        self._samples = samples
        self._job_id = ""

    @property
    def name(self) -> str:
        """The node id."""
        return self._node.node_id

    @property
    def node_id(self) -> str | None:
        """The node id."""
        return self._node.node_id

    @property
    def prices(self) -> Prices:
        """By its ask; as `NodeTarget` has it."""
        return by_ask(self._node.reported.offer.ask_usd_per_1m)

    async def start(self, job: JobSpec) -> "RemoteExchange":
        """Hand the job to the coordinator that holds the node's link; returns when the node has accepted it.

        Raises:
            TargetFault: `replica_away` and `no_free_slot` when the node was not asked at all.
        """
        where, node = self._where, self._node
        if node.elsewhere is not where:
            raise TargetFault("no_free_slot", "the node's link has moved", ran=False, blame=False)
        if node.free <= 0:
            raise TargetFault("no_free_slot", "another request took the last slot", ran=False, blame=False)
        self._job_id = job.job_id
        claims = {
            "node": node.node_id,
            "epoch": where.epoch,
            "class": str(self.resource_class),
            "job": job.job_id,
            "model": self.model,
            "route": job.path,
            "deadline_s": job.deadline_s,
        }
        self._counts(1)
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._hops.job(where, job.body, claims)
            if response.status != 200 or response.headers.get("content-type") != FRAMES:
                raise await self._refusal(response)
        except BaseException as error:
            self._counts(-1)
            if response is not None:
                response.close()
            if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
                self._hops.unreachable(where.replica, "it takes no connection")
                raise TargetFault("replica_away", "its coordinator is away", ran=False, blame=False) from error
            if isinstance(error, aiohttp.ClientError):
                raise TargetFault("node_lost", "its coordinator was lost", ran=True, blame=False) from error
            raise
        return RemoteExchange(self._hops, where, response, partial(self._counts, -1))

    def _counts(self, step: int) -> None:
        """One of our jobs on the node more, or one less."""
        where = self._where
        self._registry.runs_elsewhere(self._node, where, others=where.others, own=where.own + step)

    async def _refusal(self, response: aiohttp.ClientResponse) -> TargetFault:
        status = response.status
        try:
            said = orjson.loads(await response.read())
            fault = TargetFault(said["cause"], said["message"], ran=said["ran"], blame=said["blame"])
            there = status not in NOT_OURS
        except (ValueError, KeyError, TypeError):
            fault = TargetFault("replica_away", f"its coordinator answered {status}", ran=False, blame=False)
            there = False  # a proxy, a coordinator that takes no more connections, or somebody else
        if not there:
            # So it would for each of its nodes, and a request would ask for one after the other.
            self._hops.unreachable(self._where.replica, f"HTTP {status} at its address: {fault}")
        return fault

    def details(self) -> Mapping[str, Any]:
        """For the receipt: which coordinator passed the answer on."""
        return {"via": self._where.replica}

    def outcome(
        self,
        result: str,
        *,
        first_output_ms: float | None,
        total_ms: float | None,
        stream: StreamSample | None = None,
    ) -> None:
        """Tell the coordinator that holds the link: it has timed the stream, and keeps the node's standing."""
        empty = result == "completed" and stream is not None and stream.empty
        if result != "completed":
            self._samples.failed()
        elif not empty:
            self._samples.completed(total_ms)
        self._hops.event(
            self._where,
            kind="outcome",
            job=self._job_id,
            node=self._node.node_id,
            model=self.model,
            result=result,
            empty=empty,
            streamed=first_output_ms is not None,
        )


class RemoteExchange:
    """One job on a node elsewhere."""

    def __init__(
        self, hops: Hops, where: Elsewhere, response: aiohttp.ClientResponse, over: Callable[[], None]
    ) -> None:
        self._hops = hops
        self._where = where
        self._response = response
        self._over = over
        self._frames = FrameReader()
        self._waiting: list[tuple[bytes, bytes]] = []
        self._ended = False
        self._closed = False
        hops.open(where.replica, self)

    async def head(self) -> ReplyHead:
        """The engine's status as the node passed it on."""
        kind, content = await self._next()
        if kind == HEAD:
            said = orjson.loads(content)
            return ReplyHead(said["status"], said["content_type"], said["retry_after"])
        if kind == END:
            self._raise_end(content)
        raise TargetFault("protocol", "an answer before its status", ran=True, blame=False)

    async def pass_on(self, take: Take) -> None:
        """Hand the answer on as it comes."""
        await hand_on(self._read, take)

    async def _read(self) -> bytes | None:
        kind, content = await self._next()
        if kind == DATA:
            return content
        if kind == END:
            self._raise_end(content)
            return None
        raise TargetFault("protocol", "a second status", ran=True, blame=False)

    def _raise_end(self, content: bytes) -> None:
        said = orjson.loads(content)
        self._ended = True
        if said["cause"] is not None:
            raise TargetFault(said["cause"], said["message"], ran=said["ran"], blame=said["blame"])

    async def _next(self) -> tuple[bytes, bytes]:
        while not self._waiting:
            try:
                data = await self._response.content.readany()
                self._waiting = list(self._frames.feed(data))
            except (aiohttp.ClientError, OSError, BadFrame) as error:
                raise TargetFault("node_lost", "its coordinator was lost", ran=True, blame=False) from error
            if not data and not self._waiting:
                raise TargetFault("node_lost", "its coordinator was lost", ran=True, blame=False)
        return self._waiting.pop(0)

    def cut(self) -> None:
        """The coordinator is gone: whoever reads is told."""
        self._response.close()

    async def close(self) -> None:
        """Free the node. A connection that is closed before its end cancels the job at the other side."""
        if self._closed:
            return
        self._closed = True
        self._hops.closed(self._where.replica, self)
        self._over()
        if self._ended:
            # Whole to its last byte, its connection can be used again; closing it then does nothing.
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with asyncio.timeout(TRAILER_S):
                    await self._response.read()
        self._response.close()
