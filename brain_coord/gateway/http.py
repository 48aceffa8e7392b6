"""Plain ASGI for the hot routes: reading a bounded body, sending one answer."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any, Final, Protocol

from brain_coord.gateway.bodies import BodyLease
from brain_coord.gateway.errors import ApiError, fault

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
CONNECTION: Final = "brain.connection"
"""The ASGI extension under which a request finds the connection it came on."""


class Connection(Protocol):
    """A client's connection as our own server has it."""

    @property
    def stalled(self) -> bool:
        """Whether it was cut because the client had stopped reading."""

    def whole_body(self) -> bytes | None:
        """The request's body, if all of it is there."""

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the client leaves before its answer is complete."""


def connection_of(scope: Scope) -> Connection | None:
    """The connection that a request came on, `None` under another server than ours."""
    found: Connection | None = scope.get("extensions", {}).get(CONNECTION)
    return found


class ClientGone(Exception):  # noqa: N818
    """The client closed its connection."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Request headers by lower-case name; of repeated ones the last."""
    return {str(name, "latin-1"): str(value, "latin-1") for name, value in scope["headers"]}


async def read_body(
    receive: Receive,
    headers: dict[str, str],
    *,
    limit_bytes: int,
    idle_s: float,
    least_bytes_per_s: float = 8 * 1024,
    lease: BodyLease | None = None,
    connection: "Connection | None" = None,
) -> bytes:
    """The request's body.

    Args:
        receive: of the ASGI server.
        headers: of the request.
        limit_bytes: largest body.
        idle_s: the most between two pieces of it.
        least_bytes_per_s: what it must keep up after `idle_s`; a client that trickles holds its place for no longer.
        lease: of the memory for bodies, where nobody else counts it.
        connection: on which the request came; where all of the body is there already, nothing is waited for.

    Raises:
        ApiError: 413, 415, 408, or 503 while there is no memory for it.
        ClientGone: it left.
    """
    if headers.get("content-encoding", "identity").lower() not in ("identity", ""):
        raise fault("unsupported_encoding", f"a body in {headers['content-encoding'][:40]} is not read; send it plain")
    length = headers.get("content-length", "")
    if length.isdigit():
        if int(length) > limit_bytes:
            raise _too_large(limit_bytes)
        if lease is not None:
            lease.check(int(length))
    whole = None if connection is None else connection.whole_body()
    if whole is not None:
        if len(whole) > limit_bytes:
            raise _too_large(limit_bytes)
        if lease is not None:
            lease.grow(len(whole))
        return whole
    parts: list[bytes] = []
    size = 0
    more = True
    began = monotonic()
    while more:
        try:
            async with asyncio.timeout(min(idle_s, began + idle_s + size / least_bytes_per_s - monotonic())):
                event = await receive()
        except TimeoutError:
            raise fault("request_timeout", f"the body came too slowly, or stopped for {idle_s:g} s") from None
        if event["type"] == "http.disconnect":
            raise ClientGone
        part = event.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if lease is not None:
            lease.grow(size)
        if part:
            parts.append(part)
        more = event.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit_bytes: int) -> ApiError:
    return fault("body_too_large", f"the body is larger than {limit_bytes} bytes")


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """One whole JSON answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError, headers: Headers, body: bytes | None = None) -> None:
    """An error: in OpenAI's shape, or as the body that another form makes of it."""
    await send_json(send, error.status, body or error.encode(), [*headers, *error.extra_headers()])


def was_stalled(scope: Scope) -> bool:
    """Whether the server cut the connection because the client had stopped reading."""
    connection = connection_of(scope)
    return connection is not None and connection.stalled


def watch_client(scope: Scope, receive: Receive, gone: Callable[[], None]) -> Callable[[], object]:
    """Call `gone` when the client leaves, until what comes back is called. Under another server than ours a task waits."""
    connection = connection_of(scope)
    if connection is not None:
        connection.watch(gone)
        return _nothing

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone()

    task = asyncio.ensure_future(wait())
    return task.cancel


def _nothing() -> None:
    """A connection forgets by itself, when its answer is complete."""
