"""The sending side of a hop: one HTTP request to the coordinator that holds a node's link, proved and bound to its body."""

import asyncio
import hashlib
import secrets
import ssl
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import aiohttp

from brain_coord.cluster.secret import ClusterSecret
from brain_coord.cluster.view import Peer
from brain_coord.gateway.http import RequestHeaders

JOB_PATH: Final = "/cluster/v1/job"
EVENT_PATH: Final = "/cluster/v1/event"
ALIVE_PATH: Final = "/cluster/v1/alive"
ALIVE: Final = b"{}"
"""What a coordinator answers there, unlike a server that has an answer to everything."""

SLOT_PATH: Final = "/cluster/v1/slot"
PROOF: Final = "x-brain-cluster"

ALIVE_S: Final = 3.0
"""How long one that was not heard, or not reached, may take to say that it lives."""

EVENT_S: Final = 10.0
"""How long it is tried to tell what was seen of a node."""

CONNECT_S: Final = 2.0
"""Coordinators of a cluster are near each other; one that does not take a connection in this time is away."""

READ_AHEAD_BYTES: Final = 64 * 1024
"""What is read ahead of a client that lags; more waits at the other coordinator, and from there at the node."""


def proof_of(headers: RequestHeaders) -> str:
    """What a coordinator sent to prove that it is one, as the receiving side finds it."""
    return headers.get(PROOF.encode(), b"").decode("latin-1")


class HopClient:
    """Requests to other coordinators.

    Args:
        name: of this one.
        secret: of the cluster.
        trust: for their certificates, where they serve https.
    """

    def __init__(self, name: str, secret: ClusterSecret, trust: ssl.SSLContext | None) -> None:
        self._name = name
        self._secret = secret
        stay = aiohttp.TraceConfig()
        stay.on_request_redirect.append(_refuse_redirect)  # a websocket has no setting for it
        self._session = aiohttp.ClientSession(
            trace_configs=[stay],
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ssl=trust or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_AHEAD_BYTES,
            skip_auto_headers=("user-agent",),
        )

    def _headers(self, to: Peer, path: str, body: bytes, claims: Mapping[str, Any]) -> dict[str, str]:
        proof = self._secret.prove(
            {
                "from": self._name,
                "to": to.name,
                "run": to.run,
                "path": path,
                "at": monotonic() + to.clock_ahead,
                "nonce": secrets.token_hex(12),
                "sha256": hashlib.sha256(body).hexdigest(),
                **claims,
            }
        )
        return {PROOF: proof, "content-type": "application/octet-stream"}

    async def post(self, to: Peer, path: str, body: bytes, claims: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Send one request; returns when the status has come.

        Raises:
            aiohttp.ClientError: there is no connection, or it broke.
        """
        headers = self._headers(to, path, body, claims)
        return await self._session.post(to.address + path, data=body, headers=headers, allow_redirects=False)

    async def socket(self, to: Peer, path: str, claims: Mapping[str, Any]) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket.

        Raises:
            aiohttp.ClientError: it was refused, or there is no connection.
        """
        headers = self._headers(to, path, b"", claims)
        return await self._session.ws_connect(to.address + path, headers=headers, max_msg_size=0, autoclose=False)

    async def answers(self, to: Peer) -> bool:
        """Whether a coordinator is at its address, and takes what we send."""
        try:
            async with asyncio.timeout(ALIVE_S), await self.post(to, ALIVE_PATH, b"", {}) as response:
                return response.status == 200 and await response.read() == ALIVE
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()


async def _refuse_redirect(*_: object) -> None:
    """A hop goes to the address that a coordinator gave over Redis, and what it proves to no other."""
    raise aiohttp.ClientConnectionError("a coordinator's address answers with a redirect")
