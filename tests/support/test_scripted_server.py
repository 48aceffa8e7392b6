"""The scripted server: it ends with its test."""

import asyncio

from tests.support.scripted_server import ScriptedServer


async def test_it_ends_though_nobody_reads_what_it_said():
    async def answer(_: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"x" * 50_000_000)
        said.set()
        await asyncio.Event().wait()
        return True

    said = asyncio.Event()

    async def unread():
        async with ScriptedServer(answer) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            reader._transport.pause_reading()
            writer.write(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
            await said.wait()
        writer.transport.abort()

    await asyncio.wait_for(unread(), 10)
