"""Passing bytes between two TCP connections, and ending both for good."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Callable[[int], None] = lambda _: None
) -> None:
    """Pass bytes on until either side ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            passed(len(data))
            writer.write(data)
            await writer.drain()


async def end(writer: asyncio.StreamWriter) -> None:
    """Drop a connection and wait until it is gone."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class TcpServer:
    """A TCP server on loopback that leaves nothing behind: no task and no socket."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        """Listen; every connection is served by a task and dropped at its end."""

        async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
                return
            finally:
                await end(writer)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(whole(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # A task that is cancelled before its first step would never reach its `finally`.
            task.add_done_callback(lambda _: writer.transport.abort())

        self._server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def drop_all(self) -> None:
        """Drop every connection."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Stop listening and drop what is open."""
        self._server.close()
        self.drop_all()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)
