"""A TCP relay with the manners of a proxy: it drops quiet connections without a word, or all of them on demand."""

import asyncio

from tests.support.tunnel import TcpServer, pump


class TcpRelay:
    """Listens on loopback and passes bytes on to a port; cuts a connection that was quiet for `idle_s`."""

    def __init__(self, target_port: int, idle_s: float | None = None) -> None:
        self._target_port = target_port
        self._idle_s = idle_s
        self._server = TcpServer()
        self._forget = asyncio.Event()
        self.cut = 0
        """Connections dropped for being idle."""

    async def __aenter__(self) -> "TcpRelay":
        await self._server.start(self._serve)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    @property
    def port(self) -> int:
        return self._server.port

    def drop_all(self) -> None:
        """Drop every connection on both sides."""
        self._server.drop_all()

    def forget_all(self) -> None:
        """Pass nothing more over the connections that are open, and let neither end know: as after a sleep."""
        self._forget.set()
        self._forget = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        alive, forget = asyncio.Event(), self._forget

        def passed(_: int) -> None:
            alive.set()

        pumps = [
            asyncio.create_task(pump(reader, far_writer, passed)),
            asyncio.create_task(pump(far_reader, writer, passed)),
        ]
        forgotten = asyncio.create_task(forget.wait())
        try:
            while not any(each.done() for each in pumps):
                alive.clear()
                waiting = asyncio.create_task(alive.wait())
                done, _ = await asyncio.wait(
                    (waiting, forgotten, *pumps), timeout=self._idle_s, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                if forgotten in done:
                    for each in pumps:
                        each.cancel()
                    await asyncio.Event().wait()
                if not done:
                    self.cut += 1
                    return
        finally:
            far_writer.transport.abort()  # first and without waiting: a second cancellation may cut what follows
            for each in (forgotten, *pumps):
                each.cancel()
            await asyncio.gather(forgotten, *pumps, return_exceptions=True)
