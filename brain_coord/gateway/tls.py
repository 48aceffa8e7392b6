"""TLS in front of a client's connection, within the same bounds as what follows it.

uvicorn would leave it to the event loop: that tells nobody of a connection before its handshake is done, waits a minute for
that, and after a close half a minute for the other side's farewell. So a stranger that says nothing could hold any number
of open files.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined] # its types are not told

from brain_coord.gateway.guard import GuardedConnection

REST_S: Final = 1200.0
"""The most that the rest of a finished answer may take to leave; whoever does not read it is cut long before."""

LOOK_S: Final = 1.0
"""How often it is looked whether it has."""

_AS_IT_IS: Final = (
    "abort",
    "can_write_eof",
    "get_extra_info",
    "get_protocol",
    "is_closing",
    "is_reading",
    "pause_reading",
    "resume_reading",
    "set_protocol",
    "set_write_buffer_limits",
    "write",
    "writelines",
)


def tls_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """What the coordinator shows of itself, with Python's choice of versions and ciphers."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


class Farewell(asyncio.Transport):
    """A TLS transport that closes as soon as all is sent: it says goodbye, and does not wait for the answer (RFC 8446, 6.1)."""

    def __init__(self, tls: asyncio.Transport, line: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._line = line
        for name in _AS_IT_IS:  # as they are: nothing comes between a stream and its connection
            setattr(self, name, getattr(tls, name))

    def get_write_buffer_size(self) -> int:
        """What the system has not taken yet."""
        return self._tls.get_write_buffer_size() + self._line.get_write_buffer_size()

    def close(self) -> None:
        """Close it when what was written has left."""
        self._tls.close()
        self._end()

    def _end(self) -> None:
        if self._tls.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LOOK_S, self._end)
        else:
            self._line.close()


class Door(SSLProtocol):  # type: ignore[misc] # its types are not told
    """A connection that has not shaken hands yet: it counts, is among the first to go, and has no longer than a head.

    Attributes:
        kind: of connection that follows; its bounds hold for this one too.
        context: what we show of ourselves.
    """

    kind: type[GuardedConnection]
    context: ssl.SSLContext

    @classmethod
    def before(cls, kind: type[GuardedConnection], context: ssl.SSLContext) -> type["Door"]:
        """The class for one server."""
        return type("TlsConnection", (cls,), {"kind": kind, "context": context})

    def __init__(self, **arguments: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self._bounds = self.kind.bounds
        super().__init__(
            self.loop,
            _Behind(self, arguments),
            self.context,
            None,
            server_side=True,
            ssl_handshake_timeout=self._bounds.head_s,
            ssl_shutdown_timeout=REST_S,
        )

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin, if there is room; whoever is not known to read TLS cannot be told why there is none."""
        self.line = transport
        if not self._bounds.make_room():
            transport.abort()
            return
        self._bounds.open += 1
        self._bounds.waits(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over, before the handshake was done or after."""
        self.uncount()
        super().connection_lost(exc)

    def uncount(self) -> None:
        """The handshake is over; what follows counts for itself."""
        if self._bounds.idle.pop(self, None) is not None:
            self._bounds.open -= 1

    def hang_up(self) -> None:
        """Another one needs its place, which is free at once."""
        self.uncount()
        self.line.abort()


class _Behind(asyncio.Protocol):
    """Lets the connection in that shook hands."""

    def __init__(self, door: Door, arguments: dict[str, Any]) -> None:
        self._door = door
        self._arguments = arguments

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        door = self._door
        door.uncount()
        connection = door.kind(**self._arguments)
        transport.set_protocol(connection)
        connection.connection_made(Farewell(transport, door.line))
