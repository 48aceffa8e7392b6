"""The way from one coordinator to the others: jobs for nodes that they hold, and what was seen of those nodes."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

import aiohttp
import orjson
import structlog

from brain_coord.cluster import stray_slots
from brain_coord.cluster.hop_client import EVENT_PATH, EVENT_S, JOB_PATH, HopClient
from brain_coord.cluster.remote_target import RemoteExchange
from brain_coord.cluster.settings import ClusterSettings
from brain_coord.cluster.view import Effect, Peer, SharedView
from brain_coord.fleet.node import Elsewhere, Node
from brain_coord.gateway.http import Receive, Scope, Send
from brain_coord.store.records import Outcome

log = structlog.get_logger("brain.cluster")

LOOK_S: Final = 1.0
"""How often one that was not reached is tried again."""


class HopsOut:
    """Owned by the event loop's thread.

    Args:
        settings: of the cluster.
        name: of this coordinator.
        view: where the others are.
        follow: carries out what follows when one of them is given up.
        spawn: runs something beside everything else.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        name: str,
        view: SharedView,
        follow: Callable[[Iterable[Effect]], None],
        spawn: Callable[[Coroutine[Any, Any, object]], None],
    ) -> None:
        trust = None if settings.ca_file is None else ssl.create_default_context(cafile=settings.ca_file)
        self._client = HopClient(name, settings.secret, trust)
        self._view = view
        self._follow = follow
        self._spawn = spawn
        self._open: dict[str, set[RemoteExchange]] = {}

    def __len__(self) -> int:
        """Jobs under way at other coordinators."""
        return sum(map(len, self._open.values()))

    async def close(self) -> None:
        """Hang up."""
        await self._client.close()

    async def job(self, where: Elsewhere, body: bytes, claims: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Hand a job over to the coordinator that holds the node."""
        return await self._client.post(self._peer(where.replica), JOB_PATH, body, claims)

    def _peer(self, replica: str) -> Peer:
        peer = self._view.peers.get(replica)
        if peer is None:
            raise aiohttp.ConnectionTimeoutError(f"the coordinator {replica} is not there")
        return peer

    def unreachable(self, replica: str, cause: str) -> None:
        """A coordinator is not reached at its address: give it no more jobs until it is."""
        peer = self._view.peers.get(replica)
        if peer is not None and peer.reachable:
            log.warning("a coordinator is not reached", replica=replica, address=peer.address, cause=cause)
            self._follow(self._view.reached(replica, reachable=False))
            self._spawn(self._look_for(peer))

    async def _look_for(self, peer: Peer) -> None:
        while self._view.peers.get(peer.name) is peer:
            await asyncio.sleep(LOOK_S)
            if await self._client.answers(peer):
                log.info("a coordinator is reached again", replica=peer.name)
                self._follow(self._view.reached(peer.name, reachable=True))
                return

    def open(self, replica: str, exchange: RemoteExchange) -> None:
        """A job began at a coordinator."""
        self._open.setdefault(replica, set()).add(exchange)

    def closed(self, replica: str, exchange: RemoteExchange) -> None:
        """It ended."""
        self._open.get(replica, set()).discard(exchange)

    def cut(self, replica: str) -> None:
        """End what a coordinator streams for us."""
        for exchange in tuple(self._open.get(replica, ())):
            exchange.cut()

    async def answers(self, peer: Peer) -> bool:
        """Whether a coordinator answers at its address, though it is not heard."""
        return await self._client.answers(peer)

    def event(self, where: Elsewhere, **members: Any) -> None:
        """Tell a node's holder what was seen of it, once; what is lost then counts for nothing."""
        self._spawn(self._tell(where.replica, orjson.dumps(members)))

    async def _tell(self, replica: str, body: bytes) -> None:
        try:
            async with asyncio.timeout(EVENT_S):
                response = await self._client.post(self._peer(replica), EVENT_PATH, body, {})
                await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            log.info("an outcome was not told", replica=replica, cause=type(error).__name__)

    def forward(self, node: Node, outcome: Outcome) -> None:
        """What was seen of a node counts where its link is."""
        where = node.elsewhere
        assert where is not None
        self.event(
            where,
            kind="event",
            node=node.node_id,
            event=outcome.kind,
            result=outcome.result,
            model=outcome.model,
            detail=outcome.detail,
        )

    async def stray(self, ticket: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Pass a slot on to the coordinator that gave its ticket; `False` when that is none of us."""
        peer = self._view.peers.get(ticket.partition(stray_slots.MARK)[0])
        if peer is None:
            return False
        await stray_slots.pass_on(self._client, peer, ticket, scope, receive, send)
        return True
