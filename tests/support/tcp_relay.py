"""A TCP relay with the manners of a proxy: it drops quiet connections without a word, or all of them on demand."""

import asyncio
import contextlib


class TcpRelay:
    """Listens on loopback and passes bytes on to a port; cuts a connection that was quiet for `idle_s`."""

    def __init__(self, target_port: int, idle_s: float | None = None) -> None:
        self._target_port = target_port
        self._idle_s = idle_s
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut = 0
        """Connections dropped for being idle."""
        self.passed_bytes = 0

    async def __aenter__(self) -> "TcpRelay":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.drop_all()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def drop_all(self) -> None:
        """Drop every connection on both sides."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        alive = asyncio.Event()
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, alive)),
            asyncio.create_task(self._pump(far_reader, writer, alive)),
        ]
        try:
            while not any(pump.done() for pump in pumps):
                alive.clear()
                waiting = asyncio.create_task(alive.wait())
                done, _ = await asyncio.wait(
                    (waiting, *pumps), timeout=self._idle_s, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                if not done:
                    self.cut += 1
                    return
        except asyncio.CancelledError:
            return
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, far_writer):
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                alive.set()
                self.passed_bytes += len(data)
                writer.write(data)
                await writer.drain()
