"""Slots that a load balancer led past the coordinator that holds the node's link: passed on to it, frame by frame."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

import aiohttp
import structlog

from brain_coord.cluster.hop_client import SLOT_PATH, HopClient, proof_of
from brain_coord.cluster.secret import Doorkeeper, NotOurs
from brain_coord.cluster.view import Peer
from brain_coord.gateway.http import Receive, Scope, Send, headers_of
from brain_coord.link.socket import accept, peer_address, refuse

log = structlog.get_logger("brain.cluster")

MARK: Final = "~"
"""Stands between the coordinator's name and the rest of a ticket."""

Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]


async def pass_on(hop: HopClient, peer: Peer, ticket: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Hold a node's slot connection open to the coordinator that gave the ticket."""
    claims = {"ticket": ticket, "address": peer_address(scope)}
    try:
        async with asyncio.timeout(10.0):
            socket = await hop.socket(peer, SLOT_PATH, claims)
    except (aiohttp.ClientError, TimeoutError, OSError):
        await refuse(receive, send, 401, "the slot ticket is not valid; tickets end with their session")
        return
    try:
        if not await accept(receive, send):
            return
        ways = [asyncio.create_task(_up(receive, socket)), asyncio.create_task(_down(socket, send))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        with contextlib.suppress(OSError, RuntimeError):
            await send({"type": "websocket.close", "code": 1001, "reason": "the slot is not needed any more"})
    finally:
        await socket.close()


async def _up(receive: Receive, socket: aiohttp.ClientWebSocketResponse) -> None:
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            return
        if event.get("bytes") is not None:
            await socket.send_bytes(bytes(event["bytes"]))
        else:
            await socket.send_str(event.get("text") or "")


async def _down(socket: aiohttp.ClientWebSocketResponse, send: Send) -> None:
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            await send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.TEXT:
            await send({"type": "websocket.send", "text": message.data})


async def take(door: Doorkeeper, slot: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
    """A slot that another coordinator passes on: as if the node had come here itself."""
    try:
        claims = door.admit(proof_of(headers_of(scope)), SLOT_PATH, monotonic())
    except NotOurs as error:
        log.warning("slot refused", cause=str(error), address=peer_address(scope))
        await refuse(receive, send, 403, "not a coordinator of this cluster")
        return
    headers: list[Any] = [(b"authorization", b"Bearer " + str(claims["ticket"]).encode())]
    await slot({**scope, "headers": headers, "client": (claims["address"], 0)}, receive, send)
