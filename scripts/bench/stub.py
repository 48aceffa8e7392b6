"""A raw stub engine: answers chat completions at socket speed as the prompt tells it to, in the form vLLM sends.

    python -m scripts.bench.stub --port 9000 --model NAME

A request without instructions (a join benchmark, a health probe) gets `max_tokens` events at 400 a second.
"""

import argparse
import asyncio
import json
import time
from typing import Final, cast

import uvloop

from scripts.bench.wire import EVENTS, PAD, RATE, WORD, number_after

PHASES: Final = 10
"""Streams of one rate are spread over this many moments of its period: real engines' events do not come in one beat."""

PLAIN_RATE: Final = 400
BATCH_EVENTS: Final = 64
EDGE_BYTES: Final = 4096

_HEAD: Final = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: %s\r\n"
_LAST: Final = b"0\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Script:
    """The bytes of one model's answers."""

    def __init__(self, model: str) -> None:
        self.model = model
        start = b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"%s",'
        self._start = start % model.encode()
        self.role = self._choice(b'{"role":"assistant","content":""}')
        self.finish = self._choice(b'{"content":""}', b'"stop"')
        self._before = self._start + b'"choices":[{"index":0,"delta":{"content":"'
        self._after = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
        self.event = _chunk(self._before + WORD + b" " + self._after)
        self.head = _HEAD % b"text/event-stream; charset=utf-8" + b"transfer-encoding: chunked\r\n\r\n"

    def _choice(self, delta: bytes, finish: bytes = b"null") -> bytes:
        return _chunk(
            self._start
            + b'"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}\n\n' % (delta, finish)
        )

    def stamped(self, pad: bytes = b"") -> bytes:
        """An event that carries the moment it was made, in ns of the monotonic clock that all processes share."""
        return _chunk(self._before + WORD + b"%d " % time.monotonic_ns() + pad + self._after)

    def tail(self, events: int, *, usage: bool) -> bytes:
        """Finish, usage if it was asked for, and the end marker."""
        counts = b'"usage":{"prompt_tokens":9,"total_tokens":%d,"completion_tokens":%d}' % (events + 9, events)
        told = _chunk(self._start + b'"choices":[],' + counts + b"}\n\n") if usage else b""
        return self.finish + told + _chunk(b"data: [DONE]\n\n") + _LAST

    def whole(self, events: int) -> bytes:
        """An answer that is not streamed."""
        message = {"role": "assistant", "content": (WORD.decode() + " ") * events}
        body = {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1760000000,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "total_tokens": events + 9, "completion_tokens": events},
        }
        return self.json(body)

    @staticmethod
    def json(body: object) -> bytes:
        """A JSON answer."""
        data = json.dumps(body).encode()
        return _HEAD % b"application/json" + b"content-length: %d\r\n\r\n" % len(data) + data


class Clockwork:
    """Paced streams: one timer for each phase of each rate, however many streams there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: dict[int, list[set[Stub]]] = {}
        self._turn = 0

    def add(self, stream: "Stub", rate: int) -> set["Stub"]:
        """Have the stream called `rate` times a second, until it leaves the set that is returned."""
        if rate not in self._groups:
            self._groups[rate] = [set() for _ in range(PHASES)]
            for number, group in enumerate(self._groups[rate]):
                self._tick(group, 1 / rate, self._loop.time() + number / PHASES / rate)
        self._turn += 1
        group = self._groups[rate][self._turn % PHASES]
        group.add(stream)
        return group

    def _tick(self, group: set["Stub"], period_s: float, due: float) -> None:
        for stream in tuple(group):
            stream.beat()
        self._loop.call_at(due + period_s, self._tick, group, period_s, due + period_s)


class Stub(asyncio.Protocol):
    """One connection."""

    served = 0

    def __init__(self, script: Script, clockwork: Clockwork) -> None:
        self._script = script
        self._clockwork = clockwork
        self._parts: list[bytes] = []
        self._size = 0
        self._missing = 0
        self._left = 0
        self._events = 0
        self._usage = False
        self._pad = b""
        self._group: set[Stub] | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 — the protocol's signature
        self._left = 0
        self._leave()

    def _leave(self) -> None:
        if self._group is not None:
            self._group.discard(self)
            self._group = None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._left and self._group is None:
            self._burst()

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._missing:
            return
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        head = whole.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = whole[:head].lower()
        length = number_after(lower, b"content-length: ")
        if length is None and b"transfer-encoding: chunked" in lower:
            if not whole.endswith(_LAST):
                self._parts = [whole]
                return
            length = len(whole) - head - 4
        self._missing = head + 4 + (length or 0)
        if self._size < self._missing:
            self._parts = [whole]
            return
        self._parts, self._size, self._missing = [], 0, 0
        self._answer(whole[: head + 1], whole[head + 4 :])

    def _answer(self, head: bytes, body: bytes) -> None:
        script = self._script
        if head.startswith(b"GET /v1/models"):
            listed = {"id": script.model, "object": "model", "owned_by": "bench", "max_model_len": 1_000_000}
            self._transport.write(script.json({"object": "list", "data": [listed]}))
        elif head.startswith(b"GET /stats"):
            self._transport.write(script.json({"served": Stub.served}))
        elif head.startswith(b"GET"):
            self._transport.write(script.json({"version": "bench"}))
        else:
            self._generate(body)

    def _generate(self, body: bytes) -> None:
        Stub.served += 1
        script = self._script
        if len(body) > 2 * EDGE_BYTES:  # what it looks for stands around the large part, whoever wrote the JSON
            body = body[:EDGE_BYTES] + body[-EDGE_BYTES:]
        told = number_after(body, EVENTS)
        limit = number_after(body, b'"max_tokens":') or number_after(body, b'"max_tokens": ') or 16
        self._events = self._left = told if told is not None else limit
        rate = (number_after(body, RATE) or 0) if told is not None else PLAIN_RATE
        self._pad = b"p" * (number_after(body, PAD) or 0)
        if b'"stream":true' not in body and b'"stream": true' not in body:
            self._transport.write(script.whole(self._events))
            return
        self._usage = b'"include_usage"' in body
        self._transport.write(script.head)
        self._transport.write(script.role)
        if rate:
            self._group = self._clockwork.add(self, rate)
        else:
            self._burst()

    def beat(self) -> None:
        """The moment of one event of a paced stream."""
        if self._paused:
            return  # a full connection; an engine would not stop, but its server's buffer would grow
        self._transport.write(self._script.stamped(self._pad))
        self._left -= 1
        if not self._left:
            self._leave()
            self._transport.write(self._script.tail(self._events, usage=self._usage))

    def _burst(self) -> None:
        event = self._script.stamped(self._pad) if self._pad else self._script.event
        while self._left and not self._paused:
            count = min(self._left, BATCH_EVENTS)
            self._left -= count
            self._transport.write(event * count)
            if not self._left:
                self._transport.write(self._script.tail(self._events, usage=self._usage))


async def serve(port: int, model: str) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    script, clockwork = Script(model), Clockwork(loop)
    server = await loop.create_server(lambda: Stub(script, clockwork), "127.0.0.1", port, backlog=1024)
    print(f"stub engine on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.model))
