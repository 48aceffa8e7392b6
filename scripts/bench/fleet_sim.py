"""A simulated fleet: thousands of nodes in one process, each with a real websocket link over loopback.

    python -m scripts.bench.fleet_sim CONFIG    (JSON commands on standard input, one JSON answer each on standard output)

Each node proves itself, sends heartbeats, answers pings, opens slots when asked, answers jobs at once, and comes back
after a loss with the back-off of a real node.
"""

import asyncio
import base64
import hashlib
import json
import os
import random
import resource
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from brain_node.contract.identity import Identity
from brain_node.link.backoff import Backoff, BackoffPolicy

REPORT: Final[dict[str, Any]] = {"os": "Linux", "engine": "vllm", "engine_version": "bench", "cpu_count": 8}
FINGERPRINT: Final = "vllm/bench|8|"
SLOTS: Final = 4
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

_FINAL: Final = (
    b'data: {"choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}\n\n'
    b"data: [DONE]\n\n"
)


def identity_of(number: int) -> Identity:
    """The same key for the same number in every run."""
    return Identity(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"bench-node-%d" % number).digest()))


def models_of(number: int, models: Sequence[str]) -> list[str]:
    """Two models for each node, spread evenly."""
    return list(dict.fromkeys([models[number % len(models)], models[(number * 7 + 3) % len(models)]]))


def region_of(number: int) -> str | None:
    """Two regions, and none."""
    return ("eu", "us", None)[number % 3]


def frame(kind: int, data: bytes) -> bytes:
    """A client's frame. Its mask is zero, which is a mask: the simulation has no time for others."""
    size = len(data)
    if size < 126:
        return struct.pack("!BB4x", 0x80 | kind, 0x80 | size) + data
    if size < 65536:
        return struct.pack("!BBH4x", 0x80 | kind, 0x80 | 126, size) + data
    return struct.pack("!BBQ4x", 0x80 | kind, 0x80 | 127, size) + data


class Socket(asyncio.Protocol):
    """A websocket client at its barest."""

    path = ""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._open = False
        self.transport: asyncio.Transport | None = None

    def headers(self) -> str:
        """More lines of the handshake."""
        return ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(
            f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{self.headers()}\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self._open:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if not buffer.startswith(b"HTTP/1.1 101"):
                self.refused(bytes(buffer[9:12]))
                self.drop()
                return
            del buffer[: end + 4]
            self._open = True
        while (size := self._whole()) is not None:
            head, kind = size, buffer[0] & 15
            body = bytes(buffer[head[0] : head[1]])
            del buffer[: head[1]]
            self._frame(kind, body)

    def _whole(self) -> tuple[int, int] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 127, 2
        if size == 126:
            if len(buffer) < 4:
                return None
            size, start = int.from_bytes(buffer[2:4], "big"), 4
        elif size == 127:
            if len(buffer) < 10:
                return None
            size, start = int.from_bytes(buffer[2:10], "big"), 10
        return (start, start + size) if len(buffer) >= start + size else None

    def _frame(self, kind: int, body: bytes) -> None:
        if kind == TEXT:
            self.message(json.loads(body))
        elif kind == BINARY:
            self.binary(body)
        elif kind == PING:
            self.send(PONG, body)
        elif kind == CLOSE:
            self.drop()

    def send(self, kind: int, data: bytes) -> None:
        """Send one frame."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame(kind, data))

    def say(self, **message: Any) -> None:
        """Send one message."""
        self.send(TEXT, json.dumps(message).encode())

    def drop(self) -> None:
        """Break the connection."""
        if self.transport is not None:
            self.transport.abort()

    def refused(self, status: bytes) -> None:
        """The handshake was answered otherwise."""

    def message(self, message: dict[str, Any]) -> None:
        """A text frame came."""

    def binary(self, data: bytes) -> None:
        """A binary frame came."""


class SlotSocket(Socket):
    """One slot: answers each job at once."""

    path = "/node/v1/slot"

    def __init__(self, node: "FleetNode") -> None:
        super().__init__()
        self._node = node
        self._job: dict[str, Any] = {}
        self._missing = 0
        node.slots.add(self)

    def headers(self) -> str:
        return f"Authorization: Bearer {self._node.ticket}\r\n"

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 — the protocol's signature
        self._node.slots.discard(self)

    def message(self, message: dict[str, Any]) -> None:
        if message["type"] == "job":
            self._job, self._missing = message, message["body_bytes"]

    def binary(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing > 0 or self._node.frozen:
            return
        job = self._job["id"]
        self._node.jobs += 1
        self.say(type="accepted", id=job)
        self.say(type="head", id=job, status=200, content_type="text/event-stream")
        self.send(BINARY, _FINAL)
        self.say(type="end", id=job, ok=True)


class FleetNode(Socket):
    """One node and its link."""

    path = "/node/v1/link"

    def __init__(self, fleet: "Fleet", number: int) -> None:
        super().__init__()
        self.fleet = fleet
        self.number = number
        self.identity = identity_of(number)
        self.node_id = self.identity.node_id
        self.source = f"127.0.{1 + number // 4000}.1"
        self.slots: set[SlotSocket] = set()
        self.ticket = ""
        self.jobs = 0
        self.up = False
        self.dead = False
        self.frozen = False
        self._backoff = Backoff(BackoffPolicy(), random.random)
        self._beat: asyncio.TimerHandle | None = None

    async def dial(self) -> None:
        """Try to connect; a failure is tried again later."""
        self._buffer.clear()
        self._open = False
        fleet = self.fleet
        try:
            await fleet.loop.create_connection(lambda: self, "127.0.0.1", fleet.port, local_addr=(self.source, 0))
        except OSError:
            fleet.refused += 1
            self._again()

    def _again(self) -> None:
        self.dial_after(self._backoff.down(time.monotonic()))

    def dial_after(self, delay_s: float) -> None:
        """Try to connect in a while."""
        self.fleet.loop.call_later(delay_s, lambda: self.fleet.loop.create_task(self.dial()))

    def refused(self, status: bytes) -> None:
        self.fleet.statuses[status.decode()] = self.fleet.statuses.get(status.decode(), 0) + 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 — the protocol's signature
        if self._beat is not None:
            self._beat.cancel()
        if self.up:
            self.up = False
            self.fleet.up -= 1
        for slot in tuple(self.slots):
            slot.drop()
        if not self.dead:
            self._again()

    def message(self, message: dict[str, Any]) -> None:
        if self.frozen:
            return
        kind = message["type"]
        if kind == "ping":
            self.send(TEXT, b'{"type":"pong","n":%d}' % message["n"])
        elif kind == "challenge":
            self._hello(message)
        elif kind == "welcome":
            self.ticket = message["slot_ticket"]
            self.up = True
            self.fleet.up += 1
            self.fleet.last_up = time.monotonic()
            self.fleet.ups.append(self.fleet.last_up)
            self._backoff.up(time.monotonic())
            self._beat = self.fleet.loop.call_later(random.uniform(0, self.fleet.heartbeat_s), self._heartbeat)
        elif kind == "open_slots":
            for _ in range(message["n"]):
                self.fleet.loop.create_task(self._open_slot())
        elif kind == "refused":
            code = message["code"]
            self.fleet.statuses[code] = self.fleet.statuses.get(code, 0) + 1

    async def _open_slot(self) -> None:
        address = (self.source, 0)
        try:
            await self.fleet.loop.create_connection(
                lambda: SlotSocket(self), "127.0.0.1", self.fleet.port, local_addr=address
            )
        except OSError:
            return

    def _hello(self, challenge: dict[str, Any]) -> None:
        models = [{"id": model, "loaded": True} for model in models_of(self.number, self.fleet.models)]
        region = region_of(self.number)
        hello: dict[str, Any] = {
            "type": "hello",
            "protocol": 1,
            "node_id": self.node_id,
            "public_key": base64.b64encode(self.identity.public_key).decode(),
            "agent_version": "bench",
            "report": {**REPORT, "gpus": []},
            "offer": {"models": models, "slots": SLOTS, **({"region": region} if region else {})},
        }
        hello["proof"] = self.identity.prove(challenge["coordinator_key"], challenge["nonce"], hello)
        self.say(**hello)

    def _heartbeat(self) -> None:
        if not self.frozen:
            self.send(TEXT, b'{"type":"heartbeat","active":0,"draining":false,"telemetry":[],"engines":[]}')
        self._beat = self.fleet.loop.call_later(self.fleet.heartbeat_s, self._heartbeat)


@dataclass(slots=True)
class Fleet:
    """All nodes."""

    loop: asyncio.AbstractEventLoop
    port: int
    models: list[str]
    heartbeat_s: float = 15.0
    nodes: list[FleetNode] = field(default_factory=list)
    up: int = 0
    last_up: float = 0.0
    ups: list[float] = field(default_factory=list)
    refused: int = 0
    statuses: dict[str, int] = field(default_factory=dict)

    async def start(self, count: int, spread_s: float) -> dict[str, Any]:
        """Connect the first `count` nodes, spread over some seconds."""
        self.nodes = [FleetNode(self, number) for number in range(count)]
        for node in self.nodes:
            node.dial_after(random.uniform(0, spread_s))
        return {"started": count}

    def status(self) -> dict[str, Any]:
        """Counts now."""
        jobs = sum(node.jobs for node in self.nodes)
        told = {"up": self.up, "jobs": jobs, "last_up": self.last_up, "refused_tcp": self.refused}
        return {**told, "refused": self.statuses, "slots": sum(len(node.slots) for node in self.nodes)}

    def kill(self, count: int) -> dict[str, Any]:
        """End some nodes as a killed process does: their sockets close at once, and they do not come back."""
        chosen = [node for node in self.nodes if node.up and not node.frozen][:count]
        for node in chosen:
            node.dead = True
            node.drop()
        return {"ids": [node.node_id for node in chosen], "at": time.monotonic()}

    def freeze(self, count: int) -> dict[str, Any]:
        """Let some nodes fall silent with their sockets open, as a machine does that lost its network."""
        chosen = [node for node in self.nodes if node.up and not node.frozen][:count]
        for node in chosen:
            node.frozen = True
        return {"ids": [node.node_id for node in chosen], "at": time.monotonic()}

    def timeline(self) -> dict[str, Any]:
        """When nodes came up since the last time this was asked, monotonic seconds."""
        ups, self.ups = self.ups, []
        return {"ups": ups}

    async def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command."""
        name = command["do"]
        if name == "start":
            return await self.start(command["nodes"], command["spread_s"])
        if name in ("kill", "freeze"):
            return dict(getattr(self, name)(command["nodes"]))
        return dict(getattr(self, name)())


async def main() -> None:
    """Read commands until the input ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    loop = asyncio.get_running_loop()
    first = json.loads(sys.argv[1])
    fleet = Fleet(loop, first["port"], first["models"], first["heartbeat_s"])
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb"))
    while line := await reader.readline():
        print(json.dumps(await fleet.obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
