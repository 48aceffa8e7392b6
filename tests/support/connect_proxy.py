"""An HTTP proxy for tests: tunnels CONNECT to one place, whatever name was asked for, and remembers the names."""

import asyncio

from tests.support.tunnel import TcpServer, pump


class ConnectProxy:
    """Tunnels every CONNECT to `target_port` on loopback; answers with another status when `refuse` is set."""

    def __init__(self, target_port: int, refuse: int | None = None) -> None:
        self._target_port = target_port
        self._refuse = refuse
        self._server = TcpServer()
        self.asked: list[str] = []
        """What the proxy was asked to do, one line each."""

    async def __aenter__(self) -> "ConnectProxy":
        await self._server.start(self._serve)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b" ", 2)
        self.asked.append(f"{method.decode()} {target.decode()}")
        if self._refuse:
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self._refuse)
            await writer.drain()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        pumps = [asyncio.create_task(pump(reader, far_writer)), asyncio.create_task(pump(far_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()  # first and without waiting: a second cancellation may cut what follows
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
