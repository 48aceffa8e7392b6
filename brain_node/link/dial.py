"""Opening one websocket to the coordinator: TLS, proxy and limits in one place."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohappyeyeballs import start_connection
from websockets.asyncio.client import ClientConnection, connect

from brain_node import __version__
from brain_node.contract.limits import MAX_LINK_MESSAGE_BYTES
from brain_node.exit_codes import CONFIG
from brain_node.link.faults import Fault, LinkError
from brain_node.link.proxy import proxy_for
from brain_node.link.url import CoordinatorUrl
from brain_node.link.wire import SlotConnection

OPEN_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 2.0
HAPPY_EYEBALLS_S = 0.25
SLOT_KEEPALIVE_S = 20.0
"""Period of websocket pings on a slot: below the 60 s (nginx) and 100 s (Cloudflare) after which quiet ones are cut."""
SLOT_DEAD_S = 120.0
"""A slot whose pings stay unanswered this long is gone. Above the time a coordinator bears with a slow reader."""


class _Connect(connect):
    """A connect that follows no redirect: the hello holds a join token, meant for the address that was typed."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Verification against the system's authorities, and a private one when a file names it.

    Raises:
        LinkError: the file cannot be used.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            reason = (
                error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "no PEM certificate in it"
            )
            step = "pass a PEM file with the CA's certificate"
            raise LinkError(
                Fault("ca_file", f"the CA file {ca_file} cannot be used: {reason}", step, exit_code=CONFIG)
            ) from None
    return context


class Dialer:
    """Opens websockets to one coordinator.

    Raises:
        LinkError: the CA file cannot be used, or would be of no use.
    """

    def __init__(
        self, url: CoordinatorUrl, ca_file: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        if ca_file is not None and not url.secure:
            step = "write https:// in front of its address, or leave the CA file away"
            message = (
                f"nothing is encrypted on the way to {url.base}, so that the CA file {ca_file} would check nothing"
            )
            raise LinkError(Fault("ca_file", message, step, exit_code=CONFIG))
        self.url = url
        self._context = tls_context(ca_file) if url.secure else None
        self._environ = os.environ if environ is None else environ
        self._lookup: asyncio.Future[list[Any]] | None = None
        """The question to the name server that is under way."""

    async def link(self) -> ClientConnection:
        """An open websocket for the link.

        Raises:
            OSError, TimeoutError, ImportError, WebSocketException, ProxyError, LinkError: as `fault_of` explains them.
        """
        # No websocket pings of ours: heartbeats and the coordinator's own pings tell more, and in time.
        return await self._open(self.url.link, max_size=MAX_LINK_MESSAGE_BYTES, ping_interval=None)

    async def slot(self, ticket: str, max_bytes: int) -> SlotConnection:
        """An open websocket for a slot.

        Args:
            ticket: the session's slot ticket.
            max_bytes: largest message accepted.

        Raises:
            OSError, TimeoutError, ImportError, WebSocketException, ProxyError, LinkError: as `fault_of` explains them.
        """
        connection = await self._open(
            self.url.slot,
            max_size=max_bytes,
            ping_interval=SLOT_KEEPALIVE_S,
            ping_timeout=SLOT_DEAD_S,
            additional_headers={"Authorization": f"Bearer {ticket}"},
            create_connection=SlotConnection,
        )
        assert isinstance(connection, SlotConnection)
        connection.limit_bytes = max_bytes
        return connection

    async def _open(self, uri: str, **options: Any) -> ClientConnection:
        proxy = proxy_for(self.url, self._environ)
        if self._context is not None:
            options["ssl"] = self._context
        if "%" in self.url.host and proxy is None:
            # An IPv6 zone belongs to the socket call, never to the Host header.
            options["host"] = self.url.host
        elif proxy is None and not self.url.loopback:
            options["sock"] = await self._connected()
        dialling = _Connect(
            uri,
            user_agent_header=f"brain-node/{__version__}",
            proxy=proxy,
            compression=None,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            **options,
        )
        try:
            return await dialling
        except ConnectionResetError:
            if self._context is None:
                raise
            step = "if it is meant to be reached without TLS, write http:// in front of its address"
            message = "the coordinator's port hung up instead of speaking TLS"
            raise LinkError(Fault("tls_not_spoken", message, step, slow=True)) from None
        except OSError as error:
            if proxy is None or isinstance(error, ssl.SSLError | TimeoutError):
                raise
            # The name and port that failed are the proxy's: it is the one that looks for the coordinator.
            step = "check the proxy variables, or list the host in NO_PROXY"
            raise LinkError(
                Fault("proxy_unreachable", "the proxy of the proxy variables cannot be reached", step)
            ) from None

    async def _connected(self) -> socket.socket:
        """A connected TCP socket, the name's addresses tried side by side.

        A host whose IPv6 leads nowhere must not use up the time in which IPv4 would have answered.
        """
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            return await start_connection(await self._addresses(), happy_eyeballs_delay=HAPPY_EYEBALLS_S)

    async def _addresses(self) -> list[Any]:
        """What the name stands for now; all who ask meanwhile share one question.

        A name server that does not answer holds a thread for as long as it likes, and supervision needs threads too.
        """
        if self._lookup is None:
            asking = asyncio.to_thread(socket.getaddrinfo, self.url.host, self.url.port, type=socket.SOCK_STREAM)
            self._lookup = asyncio.ensure_future(asking)
            self._lookup.add_done_callback(self._looked_up)
        return await asyncio.shield(self._lookup)

    def _looked_up(self, lookup: "asyncio.Future[list[Any]]") -> None:
        self._lookup = None
        if not lookup.cancelled():
            lookup.exception()  # nobody may have waited so long
