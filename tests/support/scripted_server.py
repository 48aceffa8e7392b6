"""A TCP server on loopback that answers each request with scripted bytes, in the pieces it was told."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Gets a request's head, writes; whether the connection stays open."""


@dataclass
class ScriptedServer:
    answer: Answer
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    handlers: set["asyncio.Task[None] | None"] = field(default_factory=set)
    open: int = 0

    async def __aenter__(self) -> "ScriptedServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for handler in self.handlers:
            assert handler is not None
            handler.cancel()
        if self.handlers:
            await asyncio.wait(self.handlers)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.handlers.add(asyncio.current_task())
        try:
            stays = True
            while stays:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line[15:]))
                self.heads.append(head)
                stays = await self.answer(head, writer)
            writer.close()
            await writer.wait_closed()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()  # what is left is for somebody who does not read it: waiting for that may never end


def plain(body: bytes) -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def saying(*pieces: bytes, stays: bool = True, pause_s: float = 0.002) -> Answer:
    """Write the pieces one by one, so that each is likely to be read alone."""

    async def answer(_: bytes, writer: asyncio.StreamWriter) -> bool:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(pause_s)
        return stays

    return answer
