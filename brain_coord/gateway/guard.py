"""What a connection may cost before a request is whole: how many there are, how long a head takes, how large it is.

uvicorn has no such bounds with httptools: a client that sends a header a minute, or none at all, keeps its connection for
ever. A body is bounded where it is read.
"""

from asyncio import AbstractEventLoop, TimerHandle, Transport
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade

from brain_coord.gateway.bodies import BodyLease
from brain_coord.gateway.connection import ClientConnection
from brain_coord.gateway.errors import ApiError, fault
from brain_coord.gateway.http import Event, Receive
from brain_coord.link.turnstile import Turnstile


class Idle(Protocol):
    """A connection of which nothing is lost when it ends."""

    @property
    def loop(self) -> AbstractEventLoop:
        """The event loop."""

    def hang_up(self) -> None:
        """End it."""


@dataclass(slots=True)
class ConnectionBounds:
    """Shared by every connection of a server; changed by a reload. Times in seconds.

    Attributes:
        connections: most HTTP connections, TLS handshakes included; the websockets of nodes are not counted.
        head_bytes: largest request line with headers.
        headers: most headers.
        head_s: the most that a head may take from its first byte.
        idle_s: how long a connection may be idle between requests, or before the first.
        stall_s: how long a client may leave its answer unread.
        files: how many the process may have open; half of them is the most that clients get, as nodes and the store need some.
    """

    connections: int = 8192
    head_bytes: int = 64 * 1024
    headers: int = 128
    head_s: float = 10.0
    idle_s: float = 75.0
    stall_s: float = 30.0
    files: int = 1 << 20
    open: int = 0
    idle: dict["Idle", float] = field(default_factory=dict)
    """Since when, by the monotonic clock; the one that is idle for longest comes first."""
    timer: TimerHandle | None = None

    def take(self, wanted: "ConnectionBounds") -> None:
        """Hold to these bounds from now on."""
        for name in ("connections", "head_bytes", "headers", "head_s", "idle_s", "stall_s"):
            setattr(self, name, getattr(wanted, name))
        if self.timer is not None:
            self.timer.cancel()
            self._end_idle()

    def make_room(self) -> bool:
        """Whether one more may come; the connection that is idle for longest goes for it."""
        if self.open < min(self.connections, self.files // 2):
            return True
        if not self.idle:
            return False
        oldest = next(iter(self.idle))
        oldest.hang_up()
        return True

    def waits(self, connection: Idle) -> None:
        """It waits for its next request; one timer, for whichever waits longest, is enough for all."""
        self.idle[connection] = monotonic()
        if self.timer is None:
            self.timer = connection.loop.call_later(self.idle_s, self._end_idle)

    def _end_idle(self) -> None:
        self.timer, now = None, monotonic()
        for connection, since in list(self.idle.items()):
            left_s = since + self.idle_s - now
            if left_s > 0:
                self.timer = connection.loop.call_later(left_s, self._end_idle)
                return
            connection.hang_up()


def bounded(receive: Receive, limit_bytes: int, lease: BodyLease) -> Receive:
    """An ASGI `receive` that ends a request whose body grows past the limits; for routes that read it whole."""
    size = 0

    async def within() -> Event:
        nonlocal size
        event = await receive()
        size += len(event.get("body", b""))
        if size > limit_bytes:
            raise fault("body_too_large", f"the body is larger than {limit_bytes} bytes")
        lease.grow(size)
        return event

    return within


class HeadTooLarge(Exception):  # noqa: N818 — raised into the parser, which hands it on as its own
    """The head of a request is larger than the limit."""


LINK_SUFFIX: Final = b"/node/v1/link"


class GuardedConnection(ClientConnection):
    """An HTTP connection within bounds. `bound_by` makes the class for one server."""

    bounds = ConnectionBounds()
    joins = Turnstile()

    @classmethod
    def bound_by(cls, bounds: ConnectionBounds) -> type["GuardedConnection"]:
        """The class with these bounds."""
        return type("Connection", (cls,), {"bounds": bounds, "joins": Turnstile()})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counted = False
        self._head_timer: TimerHandle | None = None
        self._heading = False
        self._read_bytes = 0
        """What is being read now."""
        self._first_bytes = 0
        """The read in which the head began, with whatever stood before it."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn's own
        """Take it, or turn it away when there are too many."""
        self.stall_s = self.bounds.stall_s
        room = self.bounds.make_room()
        self._counted = True
        self.bounds.open += 1
        super().connection_made(transport)
        if not room:
            self.refuse(fault("too_many_connections", "the coordinator has too many open connections", retry_after_s=5))
            return
        self.becomes_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._uncount()
        self._stop_head_timer()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """It is a websocket from now on; links of a fleet that comes back at once are taken a few at a time."""
        self._uncount()
        if self.url.endswith(LINK_SUFFIX):
            self.transport.pause_reading()
            self.joins.call(self._upgrade)
        else:
            super().handle_websocket_upgrade()

    def _upgrade(self) -> None:
        if not self.transport.is_closing():
            super().handle_websocket_upgrade()
            self.transport.resume_reading()

    def _uncount(self) -> None:
        self.bounds.idle.pop(self, None)
        if self._counted:
            self._counted = False
            self.bounds.open -= 1

    def becomes_idle(self) -> None:
        """The next request may come, or has begun to while the last one was answered."""
        if self._heading:
            self._start_head_timer()
        else:
            self.bounds.waits(self)

    def data_received(self, data: bytes) -> None:
        """A head that does not end with what came is timed, and counted; bodies are bounded elsewhere."""
        self._read_bytes = len(data)
        self.loose_bytes += self._read_bytes
        while data:
            try:
                self.parser.feed_data(data)
                break
            except HttpParserUpgrade as asked:
                data = self.upgrade_asked(data[asked.args[0] :])
            except HttpParserError as error:
                self.refuse(self._fault_of(error))
                break
        if self._heading or self.loose_bytes:
            self._goes_on()

    def _goes_on(self) -> None:
        """A head is not whole yet, or what stands between and behind the pieces of a body."""
        if self.loose_bytes > self.bounds.head_bytes:
            self.refuse(self._larger())
        elif self._heading and self._finished:
            self._start_head_timer()

    def refuse(self, error: ApiError) -> None:
        """No head ends any more."""
        self._heading = False
        super().refuse(error)

    def on_message_begin(self) -> None:
        """A head begins; blank lines before it are none, and leave the connection idle."""
        self.bounds.idle.pop(self, None)
        self.head_begins()
        self._heading = True
        self._first_bytes, self.loose_bytes = self._read_bytes, 0

    def on_headers_complete(self) -> None:
        """The head is whole. Hardly ever are there bytes enough for it to be too large."""
        self._heading = False
        if self._head_timer is not None:
            self._stop_head_timer()
        bounds, headers = self.bounds, self.headers
        if len(headers) > bounds.headers or self._first_bytes + self.loose_bytes > bounds.head_bytes:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in headers)
            if len(headers) > bounds.headers or size > bounds.head_bytes:
                raise HeadTooLarge
        self.head_is_whole()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.bounds.head_s, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self.refuse(fault("request_timeout", f"the request's headers took more than {self.bounds.head_s:g} s"))

    def _fault_of(self, error: HttpParserError) -> ApiError:
        """The parser gave up: because of a limit, or because it is not HTTP."""
        if isinstance(error.__context__, HeadTooLarge):
            return self._larger()
        cause = "its URL is none" if isinstance(error, HttpParserCallbackError) else error
        self.logger.warning("what came is not HTTP: %s", cause)
        return fault("invalid_request", f"the request cannot be read as HTTP/1.1: {cause}")

    def _larger(self) -> ApiError:
        limit = f"{self.bounds.head_bytes} bytes or {self.bounds.headers} headers"
        return fault("head_too_large", f"the request line and headers are larger than {limit}")

    def hang_up(self) -> None:
        """Close it; its place is free at once."""
        self._uncount()
        super().hang_up()
