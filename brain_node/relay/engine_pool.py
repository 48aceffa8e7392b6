"""The connections to engines that wait for their next request."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from brain_node.relay.engine_http import EngineConnection
from brain_node.relay.origin import Origin

KEEPALIVE_S: Final = 3.0
"""Idle time of kept connections; vLLM closes its side after 5 s, and reuse must never race with that."""
CONNECT_S: Final = 5.0


class EnginePool:
    """Connections by the engine they lead to.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: dict[Origin, deque[tuple[float, EngineConnection]]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    def take(self, origin: Origin) -> EngineConnection | None:
        """The connection that was idle for the shortest time, if one still serves."""
        idle = self._idle.get(origin)
        while idle:
            since, connection = idle.pop()
            if not connection.open:
                continue
            if self._clock() - since < KEEPALIVE_S:
                return connection
            connection.hang_up()
        return None

    async def dial(self, origin: Origin) -> EngineConnection:
        """A new connection.

        Raises:
            OSError: nobody listens there, or not in the way that the address says.
            TimeoutError: nobody answers in time.
        """
        connection = EngineConnection(partial(self._keep, origin))
        loop = asyncio.get_running_loop()
        if origin.secure and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if origin.secure else None
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: connection, origin.host, origin.port, ssl=tls)
        except BaseException:
            connection.hang_up()  # it may have been opened in the very moment in which nobody wanted it any more
            raise
        return connection

    def close(self) -> None:
        """Close them all."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for idle in self._idle.values():
            for _, connection in idle:
                connection.hang_up()
        self._idle.clear()

    def _keep(self, origin: Origin, connection: EngineConnection) -> None:
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = deque()
        idle.append((self._clock(), connection))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S, self._drop_stale)

    def _drop_stale(self) -> None:
        oldest = self._clock() - KEEPALIVE_S
        for origin, idle in list(self._idle.items()):
            while idle and (idle[0][0] <= oldest or not idle[0][1].open):
                idle.popleft()[1].hang_up()
            if not idle:
                del self._idle[origin]
        self._sweep = None
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S, self._drop_stale)
