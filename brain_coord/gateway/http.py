"""Plain ASGI for the hot routes: reading a bounded body, sending one answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from time import monotonic
from typing import Any, Final, Protocol

from brain_coord.gateway.bodies import BodyLease
from brain_coord.gateway.errors import ApiError, fault

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
RequestHeaders = Mapping[bytes, bytes]
"""By lower-case name; what was repeated stands as one list."""

CONNECTION: Final = "brain.connection"
"""The ASGI extension under which a request finds the connection it came on."""


_LINE: Final = b"%b: %b\r\n".__mod__
"""A header as it is written."""


def lines_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are written."""
    return b"".join(map(_LINE, headers))


def pairs_of(lines: bytes) -> Headers:
    """Headers by name, from how they are written."""
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines.splitlines())]


class Flow(Protocol):
    """Whether a client reads as fast as it is written to."""

    write_paused: bool
    """Whether so much is kept for it that more should wait."""

    async def drain(self) -> None:
        """Until it has room for more, or has left."""


class Connection(Protocol):
    """A request and its answer on a client's connection, as our own server has them."""

    @property
    def headers(self) -> RequestHeaders:
        """Of the request."""

    more_lines: bytes
    """Headers that are added to the head of the answer, whoever sends it."""

    @property
    def stalled(self) -> bool:
        """Whether it was cut because the client had stopped reading."""

    def whole_body(self) -> bytes | None:
        """The request's body, if all of it is there."""

    @property
    def flow(self) -> Flow:
        """Of its client."""

    def watch(self, gone: Callable[[], None]) -> None:
        """Call this when the client leaves before its answer is complete."""

    def begin(self, status: int, lines: bytes, length_bytes: int | None = None) -> None:
        """The head of the answer: headers as they are written. It leaves with the first piece of the body.

        Without a length the body comes piece by piece.
        """

    def write(self, body: bytes | memoryview, *, more: bool) -> None:
        """A piece of the answer's body, whose head was given; what comes by here is made into no events on its way."""


def connection_of(scope: Scope) -> Connection:
    """The connection that a request came on."""
    found: Connection = scope["extensions"][CONNECTION]
    return found


class ClientGone(Exception):  # noqa: N818
    """The client closed its connection."""


def joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """By name: a header that comes several times is one list (RFC 9110, 5.3), and none of its values is picked unasked."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found


def headers_of(scope: Scope) -> RequestHeaders:
    """The headers of a request."""
    return joined(scope["headers"])


def check_body(headers: RequestHeaders, size_bytes: int, limit_bytes: int) -> None:
    """Whether a body with these headers and of this size is one that we take.

    Raises:
        ApiError: 413, 415.
    """
    encoding = headers.get(b"content-encoding")
    if encoding and encoding.lower() != b"identity":
        raise fault("unsupported_encoding", f"a body in {encoding.decode('latin-1')[:40]} is not read; send it plain")
    if size_bytes > limit_bytes:
        raise fault("body_too_large", f"the body is larger than {limit_bytes} bytes")


async def read_body(
    receive: Receive,
    headers: RequestHeaders,
    *,
    limit_bytes: int,
    idle_s: float,
    least_bytes_per_s: float = 8 * 1024,
    lease: BodyLease | None = None,
) -> bytes:
    """The request's body.

    Args:
        receive: of the ASGI server.
        headers: of the request.
        limit_bytes: largest body.
        idle_s: the most between two pieces of it.
        least_bytes_per_s: what it must keep up after `idle_s`; a client that trickles holds its place for no longer.
        lease: of the memory for bodies, where nobody else counts it.

    Raises:
        ApiError: 413, 415, 408, or 503 while there is no memory for it.
        ClientGone: it left.
    """
    length = headers.get(b"content-length", b"")
    announced = int(length) if length.isdigit() else 0
    check_body(headers, announced, limit_bytes)
    if lease is not None:
        lease.check(announced)
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
        check_body(headers, size, limit_bytes)
        if lease is not None:
            lease.grow(size)
        if part:
            parts.append(part)
        more = event.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def send_json(
    connection: Connection, status: int, body: bytes | memoryview, lines: bytes, end: bytes = b""
) -> None:
    """One whole JSON answer, with these headers, once the client has room for it.

    Args:
        connection: of the client.
        status: of the answer.
        body: of the answer.
        lines: its headers.
        end: the rest of a body that is too large to be copied together.
    """
    if connection.flow.write_paused:
        await connection.flow.drain()
    connection.begin(status, b"content-type: application/json\r\n" + lines, len(body) + len(end))
    connection.write(body, more=bool(end))
    if end:
        connection.write(end, more=False)


async def send_error(connection: Connection, error: ApiError, lines: bytes, body: bytes | None = None) -> None:
    """An error: in OpenAI's shape, or as the body that another form makes of it."""
    await send_json(connection, error.status, body or error.encode(), lines + lines_of(error.extra_headers()))
