"""Plain ASGI for the hot routes: reading a bounded body, sending one answer."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from brain_coord.gateway.errors import ApiError, fault

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")


class ClientGone(Exception):  # noqa: N818
    """The client closed its connection."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Request headers by lower-case name; of repeated ones the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(receive: Receive, headers: dict[str, str], *, limit_bytes: int, idle_s: float) -> bytes:
    """The request's body.

    Args:
        receive: of the ASGI server.
        headers: of the request.
        limit_bytes: largest body.
        idle_s: the most between two pieces of it; a client that trickles is cut off.

    Raises:
        ApiError: 413 or 408.
        ClientGone: it left.
    """
    too_large = fault("body_too_large", f"the body is larger than {limit_bytes} bytes")
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > limit_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        try:
            async with asyncio.timeout(idle_s):
                event = await receive()
        except TimeoutError:
            raise fault("request_timeout", f"the body stopped coming for {idle_s:g} s") from None
        if event["type"] == "http.disconnect":
            raise ClientGone
        part = event.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise too_large
        if part:
            parts.append(part)
        more = event.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """One whole JSON answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError, headers: Headers) -> None:
    """An error in OpenAI's shape."""
    extra = [*headers, *error.headers]
    if error.retry_after_s is not None:
        extra.append((b"retry-after", str(error.retry_after_s).encode()))
    await send_json(send, error.status, error.encode(), extra)
