"""An HTTP client on a bare socket: keeps every byte and when it came, and can reset, stall, half-close and trickle."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

LIMIT_S = 60.0


@dataclass
class Reply:
    """An answer as it came so far."""

    raw: bytearray = field(default_factory=bytearray)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    """Monotonic seconds and bytes of every read."""

    @property
    def head(self) -> bytes:
        return bytes(self.raw).partition(b"\r\n\r\n")[0]

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def body(self) -> bytes:
        """The body, out of its chunks, as far as it has come."""
        rest = bytes(self.raw).partition(b"\r\n\r\n")[2]
        if self.headers.get("transfer-encoding") != "chunked":
            return rest
        parts = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            parts.append(rest[: int(size or b"0", 16)])
            rest = rest[int(size or b"0", 16) + 2 :]
        return b"".join(parts)

    @property
    def whole(self) -> bool:
        """Whether the answer has ended as HTTP says, not by a cut."""
        if b"\r\n\r\n" not in self.raw:
            return False
        if self.headers.get("transfer-encoding") == "chunked":
            return self.raw.endswith(b"0\r\n\r\n")
        return len(self.body) == int(self.headers.get("content-length", "0"))

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[bytes]:
        """The blocks of an event stream, comments too."""
        return [block for block in self.body.replace(b"\r\n", b"\n").split(b"\n\n") if block]

    @property
    def data(self) -> list[Any]:
        """The JSON of every data event; `[DONE]` stays a text."""
        found = []
        for block in self.events:
            lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
            if lines:
                text = b"\n".join(lines)
                found.append("[DONE]" if text == b"[DONE]" else json.loads(text))
        return found

    @property
    def text(self) -> str:
        """What a chat stream said."""
        choices = [choice for event in self.data if isinstance(event, dict) for choice in event.get("choices", ())]
        return "".join(choice["delta"].get("content") or "" for choice in choices)


class RawClient:
    """One connection."""

    def __init__(self, url: str, key: str | None = None, *, receive_buffer: int | None = None) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._key = key
        self._receive_buffer = receive_buffer
        self.reply = Reply()
        self.closed = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "RawClient":
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        peer.setblocking(False)
        if self._receive_buffer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        await asyncio.get_running_loop().sock_connect(peer, self._address)
        self._reader, self._writer = await asyncio.open_connection(sock=peer, limit=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def writer(self) -> asyncio.StreamWriter:
        assert self._writer is not None
        return self._writer

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def request(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str
    ) -> None:
        """Send a request; header names with underscores for dashes."""
        await self.send(self.head_of(method, path, body, **headers) + self.body_of(body))

    def head_of(self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str) -> bytes:
        lines = {"host": "test", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self._key is not None:
            lines.setdefault("authorization", f"Bearer {self._key}")
        if body is not None:
            lines.setdefault("content-type", "application/json")
            lines.setdefault("content-length", str(len(self.body_of(body))))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode()

    @staticmethod
    def body_of(body: bytes | Mapping[str, Any] | None) -> bytes:
        return b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()

    async def post(self, path: str, body: bytes | Mapping[str, Any], **headers: str) -> None:
        await self.request("POST", path, body, **headers)

    async def read_some(self, size: int = 65536) -> bytes:
        """What comes next; empty at the end of the connection."""
        assert self._reader is not None
        async with asyncio.timeout(LIMIT_S):
            try:
                data = await self._reader.read(size)
            except ConnectionError:
                data = b""
        self.closed = not data
        if data:
            self.reply.pieces.append((monotonic(), data))
            self.reply.raw += data
        return data

    async def read_until(self, text: bytes) -> Reply:
        """Until these bytes have come; fails if the connection ends first."""
        while text not in self.reply.raw:
            assert await self.read_some(), f"the connection ended before {text!r} came: {bytes(self.reply.raw)!r}"
        return self.reply

    async def answer(self) -> Reply:
        """The whole answer, or as much of it as comes before the connection ends."""
        while not self.reply.whole:
            if not await self.read_some():
                break
        return self.reply

    async def exchange(
        self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str
    ) -> Reply:
        """A request and its whole answer."""
        self.reply = Reply()
        await self.request(method, path, body, **headers)
        return await self.answer()

    def half_close(self) -> None:
        """No more will be sent from here."""
        self.writer.write_eof()

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        peer = self.writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
