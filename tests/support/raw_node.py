"""A node written by hand on a websocket client, so that it can lie, stall, flap and break the protocol."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from brain_node.contract.identity import Identity

Frame = str | bytes
Script = Callable[["RawJob"], Awaitable[None]]


class RawJob:
    """One job as it came on a slot, and the means to answer it in any way."""

    def __init__(self, socket: ClientConnection, message: dict[str, Any], body: bytes) -> None:
        self.socket = socket
        self.message = message
        self.body = body
        self.cancelled = asyncio.Event()

    @property
    def id(self) -> str:
        return str(self.message["id"])

    @property
    def request(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    async def say(self, kind: str, **members: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, "id": self.id, **members}))

    async def accept(self) -> None:
        await self.say("accepted")

    async def head(self, status: int = 200, content_type: str = "text/event-stream", **more: Any) -> None:
        await self.say("head", status=status, content_type=content_type, **more)

    async def send(self, data: bytes) -> None:
        await self.socket.send(data)

    async def event(self, value: Any) -> None:
        await self.send(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def end(self, ok: bool = True, **more: Any) -> None:
        await self.say("end", ok=ok, **more)

    async def drop(self) -> None:
        """Break the slot's connection without a close handshake."""
        self.socket.transport.abort()


def chunk(
    content: str | None = None, *, finish: str | None = None, role: str | None = None, **more: Any
) -> dict[str, Any]:
    """One chat chunk as an engine sends it."""
    delta: dict[str, Any] = {} if role is None else {"role": role}
    if content is not None:
        delta["content"] = content
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}


def usage(completion: int, prompt: int = 3) -> dict[str, Any]:
    """The usage chunk at the end of a stream."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": counts}


async def answer(job: RawJob, words: Sequence[str] = ("one ", "two ", "three "), pause_s: float = 0.02) -> None:
    """Answer like a healthy engine, streamed or not; benchmarks get as many tokens as they ask for."""
    wanted = job.request.get("max_tokens")
    if job.request.get("ignore_eos") and isinstance(wanted, int):
        words = [f"w{number} " for number in range(wanted)]
    await job.accept()
    if not job.request.get("stream"):
        message = {"role": "assistant", "content": "".join(words)}
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": job.message["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage(len(words))["usage"],
        }
        await job.head(content_type="application/json")
        await job.send(json.dumps(body).encode())
        await job.end()
        return
    await job.head()
    await job.event(chunk("", role="assistant"))
    for word in words:
        if job.cancelled.is_set():
            await job.end(ok=False, cause="cancelled")
            return
        await job.event(chunk(word))
        await asyncio.sleep(pause_s)
    await job.event(chunk(finish="stop"))
    await job.event(usage(len(words)))
    await job.send(b"data: [DONE]\n\n")
    await job.end()


class RawNode:
    """One link and its slots. `script` answers every job; change it at any time."""

    def __init__(
        self,
        url: str,
        *,
        models: Sequence[str] = ("brain/mock",),
        slots: int = 4,
        script: Script = answer,
        identity: Identity | None = None,
        token: str | None = None,
        report: dict[str, Any] | None = None,
        offer: dict[str, Any] | None = None,
        heartbeat_s: float | None = None,
    ) -> None:
        self.url = url.replace("http", "ws", 1)
        self.identity = identity or Identity.generate()
        self.script = script
        self.slots = slots
        self.heartbeat_s = heartbeat_s
        self.jobs: list[RawJob] = []
        self.received: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        self.answer_pings = True
        self.link: ClientConnection | None = None
        self._token = token
        self._report = report or {"os": "Linux"}
        self._offer = {"models": [{"id": model, "loaded": True} for model in models], "slots": slots, **(offer or {})}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[ClientConnection] = set()

    @property
    def node_id(self) -> str:
        return self.identity.node_id

    async def hello(self, challenge: dict[str, Any]) -> dict[str, Any]:
        hello: dict[str, Any] = {
            "type": "hello",
            "protocol": 1,
            "node_id": self.node_id,
            "public_key": base64.b64encode(self.identity.public_key).decode(),
            "agent_version": "raw",
            "report": self._report,
            "offer": self._offer,
        }
        if self._token is not None:
            hello["token"] = self._token
        hello["proof"] = self.identity.prove(challenge["coordinator_key"], challenge["nonce"], hello)
        return hello

    async def join(self) -> dict[str, Any]:
        """Link and open every slot; returns the coordinator's answer to the hello."""
        self.link = await connect(f"{self.url}/node/v1/link", compression=None, proxy=None)
        challenge = json.loads(await self.link.recv())
        await self.link.send(json.dumps(await self.hello(challenge)))
        self.welcome = json.loads(await self.link.recv())
        if self.welcome["type"] == "welcome":
            self._spawn(self._listen(self.link))
            self._spawn(self._beat(self.link))
            for _ in range(self.slots):
                await self.open_slot()
        return self.welcome

    def _spawn(self, work: Any) -> None:
        async def run() -> None:
            with contextlib.suppress(ConnectionClosed, OSError):
                await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began, it would complain

    async def _listen(self, link: ClientConnection) -> None:
        async for text in link:
            message = json.loads(text)
            self.received.append(message)
            if message["type"] == "ping" and self.answer_pings:
                await link.send(json.dumps({"type": "pong", "n": message["n"]}))
            elif message["type"] == "open_slots":
                for _ in range(message["n"]):
                    await self.open_slot()

    async def _beat(self, link: ClientConnection) -> None:
        while True:
            await self.heartbeat(link)
            await asyncio.sleep(self.heartbeat_s or self.welcome["heartbeat_s"])

    async def heartbeat(self, link: ClientConnection | None = None, **members: Any) -> None:
        """Send one heartbeat, with any members."""
        link = link or self.link
        assert link is not None
        await link.send(json.dumps({"type": "heartbeat", "active": 0, "draining": False, **members}))

    async def open_slot(self) -> None:
        """Open one more slot connection."""
        headers = {"Authorization": f"Bearer {self.welcome['slot_ticket']}"}
        socket = await connect(
            f"{self.url}/node/v1/slot", compression=None, proxy=None, additional_headers=headers, max_size=None
        )
        self._sockets.add(socket)
        self._spawn(self._serve(socket))

    async def _serve(self, socket: ClientConnection) -> None:
        try:
            await self._take_jobs(socket)
        finally:
            self._sockets.discard(socket)
            socket.transport.abort()

    async def _take_jobs(self, socket: ClientConnection) -> None:
        while True:
            message = json.loads(await socket.recv())
            if message["type"] != "job":
                continue  # a cancel that crossed the end
            body = bytearray()
            while len(body) < message["body_bytes"]:
                frame = await socket.recv()
                assert isinstance(frame, bytes)
                body += frame
            job = RawJob(socket, message, bytes(body))
            self.jobs.append(job)
            running = asyncio.ensure_future(self.script(job))
            await self._watch(socket, job, running)

    async def _watch(self, socket: ClientConnection, job: RawJob, running: "asyncio.Future[None]") -> None:
        """Hear a cancel while the script runs."""
        reading = asyncio.ensure_future(socket.recv())
        try:
            while True:
                await asyncio.wait((running, reading), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    message = json.loads(reading.result())
                    if message["type"] == "cancel" and message["id"] == job.id:
                        job.cancelled.set()
                    reading = asyncio.ensure_future(socket.recv())
                if running.done():
                    running.result()
                    return
        finally:
            running.cancel()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await reading

    async def leave(self) -> None:
        """Close everything."""
        while self._tasks:  # a task that ends may have started another
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for socket in self._sockets:  # of tasks that were cancelled before they began
            socket.transport.abort()
        if self.link is not None:
            await self.link.close()

    async def __aenter__(self) -> "RawNode":
        await self.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()
