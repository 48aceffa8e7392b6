"""A websocket of the ASGI server as the link and slot endpoints use it."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from brain_coord.link.slot import Frames, Receive, Send
from brain_node.contract.messages import Message, encode


def header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    """The last value of a request header, `None` if absent."""
    found: str | None = None
    for key, value in scope["headers"]:
        if key == name:
            found = value.decode("latin-1")
    return found


def peer_address(scope: MutableMapping[str, Any]) -> str:
    """The address of the other end, as the server (with its list of trusted proxies) sees it."""
    client = scope.get("client")
    return client[0] if client else "unknown"


FRAMES: Final = "brain.frames"
"""The ASGI extension under which a websocket's endpoint finds its connection."""


def frames_of(scope: MutableMapping[str, Any]) -> Frames:
    """The connection of a websocket that our own server serves."""
    frames: Frames = scope["extensions"][FRAMES]
    return frames


class LinkSocket:
    """The sending half of a link. Errors of a dying connection are swallowed: its reader is who notices the end."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._closing = False

    async def send(self, message: Message) -> None:
        """Send one message."""
        try:
            await self._send({"type": "websocket.send", "text": encode(message)})
        except (OSError, RuntimeError):
            self._closing = True

    async def close(self, code: int, reason: str) -> None:
        """Close with a websocket status code."""
        if not self._closing:
            self._closing = True
            try:
                await self._send({"type": "websocket.close", "code": code, "reason": reason[:120]})
            except (OSError, RuntimeError):
                return

    async def text(self) -> str | None:
        """The next text frame; `None` when the connection is over. Binary frames are not part of a link."""
        event = await self._receive()
        if event["type"] == "websocket.disconnect":
            self._closing = True
            return None
        text = event.get("text")
        return text if text is not None else ""


async def refuse(receive: Receive, send: Send, status: int, text: str) -> None:
    """Answer a websocket handshake with an HTTP status instead of accepting it."""
    event = await receive()
    if event["type"] != "websocket.connect":
        return
    await send(
        {
            "type": "websocket.http.response.start",
            "status": status,
            "headers": [(b"content-type", b"text/plain; charset=utf-8")],
        }
    )
    await send({"type": "websocket.http.response.body", "body": text.encode()})


async def accept(receive: Receive, send: Send, protocol: str | None = None) -> bool:
    """Finish the handshake, with a subprotocol where one was asked for; `False` when the peer is gone already."""
    event = await receive()
    if event["type"] != "websocket.connect":
        return False
    try:
        await send({"type": "websocket.accept", "subprotocol": protocol})
    except (OSError, RuntimeError):
        return False
    await asyncio.sleep(0)
    return True
