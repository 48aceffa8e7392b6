"""A hand-made coordinator on real websockets: it speaks the node protocol by hand, so that it can also misspeak it."""

import asyncio
import base64
import contextlib
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from brain_node.contract.identity import verify_hello
from brain_node.contract.limits import BODY_BYTES, FRAME_BYTES

KEY = base64.b64encode(b"the raw coordinator's public key").decode()
WAIT_S = 20.0


@dataclass
class RawLink:
    """One link after its hello: what the node said, and a mouth to answer with."""

    socket: ServerConnection
    hello: dict[str, Any]
    nonce: str
    heard: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": kind, **fields}).decode())

    async def next(self, kind: str, true: Callable[[dict[str, Any]], object] = lambda _: True) -> dict[str, Any]:
        """The next message of one kind for which `true` holds; others are dropped."""
        async with asyncio.timeout(WAIT_S):
            while True:
                message = await self.heard.get()
                if message["type"] == kind and true(message):
                    return message

    async def draining(self) -> None:
        """Return once the node says that it takes no new jobs."""
        await self.next("heartbeat", lambda beat: beat["draining"])

    async def offered(self) -> dict[str, Any]:
        """The first offer that has a model."""
        said = self.hello
        if not said["offer"]["models"]:
            said = await self.next("offer", lambda message: message["offer"]["models"])
        offer: dict[str, Any] = said["offer"]
        return offer

    async def welcome(self, ticket: str, **changes: Any) -> None:
        limits = {"body_bytes": BODY_BYTES, "frame_bytes": FRAME_BYTES, "spare_slots": 2} | changes.pop("limits", {})
        fields = {
            "session": secrets.token_hex(4),
            "heartbeat_s": 15.0,
            "ping_s": 20.0,
            "slot_ticket": ticket,
            "accepted": [model["id"] for model in self.hello["offer"]["models"]],
            "refused": [],
            "limits": limits,
        }
        await self.say("welcome", **(fields | changes))


@dataclass
class Reply:
    """What came back for one job."""

    accepted: bool = False
    head: dict[str, Any] | None = None
    frames: list[bytes] = field(default_factory=list)
    end: dict[str, Any] | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.frames)


@dataclass
class RawSlot:
    """One slot connection, idle until told otherwise."""

    socket: ServerConnection
    ticket: str

    async def job(self, body: bytes, **fields: Any) -> str:
        """Send one job with its body; its id."""
        job_id = fields.pop("id", secrets.token_hex(4))
        await self.say_job(job_id, len(body), **fields)
        for start in range(0, len(body), FRAME_BYTES):
            await self.socket.send(body[start : start + FRAME_BYTES])
        return job_id

    async def say_job(self, job_id: str, body_bytes: int, **fields: Any) -> None:
        job = {"model": "brain/mock", "path": "/v1/chat/completions", "deadline_s": 60.0, "body_bytes": body_bytes}
        await self.socket.send(orjson.dumps({"type": "job", "id": job_id, **job, **fields}).decode())

    async def cancel(self, job_id: str) -> None:
        await self.socket.send(orjson.dumps({"type": "cancel", "id": job_id}).decode())

    async def next(self) -> bytes | dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            frame = await self.socket.recv()
        return frame if isinstance(frame, bytes) else orjson.loads(frame)

    async def reply(self) -> Reply:
        """Everything up to `end`."""
        reply = Reply()
        while reply.end is None:
            frame = await self.next()
            if isinstance(frame, bytes):
                reply.frames.append(frame)
            elif frame["type"] == "accepted":
                reply.accepted = True
            elif frame["type"] == "head":
                reply.head = frame
            else:
                reply.end = frame
        return reply

    async def ask(self, body: bytes, **fields: Any) -> Reply:
        """One whole job."""
        await self.job(body, **fields)
        return await self.reply()


class RawCoordinator:
    """Listens on loopback; every link is welcomed unless `on_hello` does something else.

    Args:
        host: address to bind.
        tls: a server context, for https.
        prefix: path under which it lives.
        challenge: fields that differ from the usual challenge.
        welcome: fields that differ from the usual welcome.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        prefix: str = "",
        challenge: dict[str, Any] | None = None,
        **welcome: Any,
    ) -> None:
        self._host = host
        self._tls = tls
        self._prefix = prefix
        self._challenge = challenge or {}
        self._welcome = welcome
        self._links: asyncio.Queue[RawLink] = asyncio.Queue()
        self._slots: asyncio.Queue[RawSlot] = asyncio.Queue()
        self._server: Server | None = None
        self.port = 0
        self.requests: list[tuple[str, Headers]] = []
        """Path and headers of every websocket handshake that was tried."""
        self.open_slots: list[RawSlot] = []
        self.answer: Callable[[str], tuple[int, dict[str, str]] | None] = lambda path: None
        """HTTP status and headers to answer a handshake with, instead of accepting it."""
        self.on_hello: Callable[[RawLink], Any] | None = None
        """Called instead of the welcome."""
        self._busy: set[asyncio.Task[None]] = set()
        """Connections that are with `on_hello`."""

    async def __aenter__(self) -> "RawCoordinator":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await serve(
            self._accept,
            self._host,
            self.port,
            ssl=self._tls,
            process_request=self._request,
            compression=None,
            max_size=None,
            ping_interval=None,
            close_timeout=1,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go away as a stopped server does; an `on_hello` that still waits, as when its test failed, waits no more."""
        if self._server is not None:
            self._server.close()
            for task in self._busy:
                task.cancel()
            await self._server.wait_closed()
            self._server = None

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'s' if self._tls else ''}://{host}:{self.port}{self._prefix}"

    async def link(self) -> RawLink:
        """The next link whose hello came."""
        async with asyncio.timeout(WAIT_S):
            return await self._links.get()

    async def slot(self) -> RawSlot:
        """The next slot connection."""
        async with asyncio.timeout(WAIT_S):
            return await self._slots.get()

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append((request.path, request.headers))
        path = request.path.removeprefix(self._prefix)
        given = self.answer(path)
        if given is None and path in ("/node/v1/link", "/node/v1/slot"):
            return None
        status, headers = given or (404, {})
        response = connection.respond(HTTPStatus(status), "")
        response.headers.update(headers)
        return response

    async def _accept(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        if socket.request.path.endswith("/slot"):
            slot = RawSlot(socket, socket.request.headers["Authorization"].removeprefix("Bearer "))
            self.open_slots.append(slot)
            await self._slots.put(slot)
            await socket.wait_closed()
            self.open_slots.remove(slot)
            return
        nonce = secrets.token_hex(8)
        challenge = {"type": "challenge", "protocol": 1, "coordinator_key": KEY, "nonce": nonce}
        await socket.send(orjson.dumps(challenge | self._challenge).decode())
        try:
            hello = orjson.loads(await socket.recv())
        except ConnectionClosed:
            return
        assert verify_hello(hello, KEY, nonce) is None
        link = RawLink(socket, hello, nonce)
        if self.on_hello is not None:
            task = asyncio.current_task()
            assert task is not None
            self._busy.add(task)
            try:
                await self.on_hello(link)
            finally:
                self._busy.discard(task)
        else:
            await link.welcome(f"ticket-{nonce}", **self._welcome)
        await self._links.put(link)
        with contextlib.suppress(ConnectionClosed):
            async for frame in socket:
                await link.heard.put(orjson.loads(frame))
        link.closed.set()
