"""A program in place of vLLM, for faults that the real one shows too rarely or too slowly.

As a module it describes what the program shall do (`FakeVllm`, `program`); run as a script it does it. Only the standard
library is used, so that it starts at once. Each start takes the next description of its script, the last one again and
again; the description is read anew at each request, so a test can change a running engine.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

LIFETIME_S = 900


@dataclass
class FakeVllm:
    """What one start of the program does. Times are in seconds."""

    start_delay_s: float = 0.0
    """Until it binds its port (or exits, with `exit_code`)."""
    stderr: list[str] = field(default_factory=list)
    """Lines written before that."""
    exit_code: int | None = None
    """Exit with this instead of serving."""
    serve_as: str | None = None
    """Another model id than the one asked for."""
    hang_after_chats: int | None = None
    """After so many chats and canaries only headers come, while /health stays 200."""
    health_hang_s: float = 0.0
    """/health does not answer for this long from the first chat on."""
    first_token_s: float = 0.0
    """From a chat to its first token."""
    tokens: int = 3
    token_s: float = 0.0
    """Between tokens."""
    reply: list[str] | None = None
    """Raw pieces of bytes (as Latin-1 text) sent for a chat instead of a proper answer."""
    ignore_term: bool = False
    child: bool = False
    """Start a process of its own that outlives it, as EngineCore does."""
    env_to: str | None = None
    """Write the environment and the words there."""
    exit_when_busy: int | None = None
    """Exit with this code once the first token of a chat is out."""
    completions: bool = True
    """Whether it knows /v1/completions."""


def program(folder: Path, *starts: FakeVllm) -> tuple[str, ...]:
    """The words that run the program with this script; `rewrite` changes it later."""
    script = folder / "fake-vllm.json"
    rewrite(script, *starts)
    return (sys.executable, "-I", "-S", __file__, "--script", str(script))


def rewrite(script: Path, *starts: FakeVllm) -> None:
    """Change what the program does, also while it runs."""
    temporary = script.with_suffix(".new")
    temporary.write_text(json.dumps([asdict(start) for start in starts]))
    temporary.replace(script)


def starts_of(script: Path) -> int:
    """How often the program was started."""
    count = script.with_suffix(".count")
    return len(count.read_text()) if count.exists() else 0


class _Server:
    def __init__(self, script: Path, start: int, model: str) -> None:
        self.script = script
        self.start = start
        self.model = model
        self.chats = 0
        self.tokens = 0
        self.running = 0
        self.first_chat_at: float | None = None

    @property
    def does(self) -> FakeVllm:
        starts = json.loads(self.script.read_text())
        return FakeVllm(**starts[min(self.start, len(starts) - 1)])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                words = head.split(b" ", 2)
                length = 0
                for line in head.split(b"\r\n")[1:]:
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                body = await reader.readexactly(length)
                await self.answer(words[1].decode(), body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        does = self.does
        if path == "/health":
            if does.health_hang_s and self.first_chat_at is not None:
                left_s = self.first_chat_at + does.health_hang_s - time.monotonic()
                await asyncio.sleep(max(0.0, left_s))
            plain(writer, 200, b"", "text/plain")
        elif path == "/v1/models":
            names = [{"id": does.serve_as or self.model, "object": "model"}]
            plain(writer, 200, json.dumps({"object": "list", "data": names}).encode())
        elif path == "/metrics":
            text = f'vllm:generation_tokens_total{{model_name="m"}} {self.tokens}.0\n'
            text += f'vllm:num_requests_running{{model_name="m"}} {self.running}.0\n'
            plain(writer, 200, text.encode(), "text/plain")
        elif path == "/v1/chat/completions" or (path == "/v1/completions" and does.completions):
            await self.generate(path, body, does, writer)
        else:
            plain(writer, 404, b'{"detail":"Not Found"}')

    async def generate(self, path: str, body: bytes, does: FakeVllm, writer: asyncio.StreamWriter) -> None:
        chat = path.endswith("chat/completions")
        if does.hang_after_chats is not None and self.chats >= does.hang_after_chats:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(3600)
        if chat:
            self.chats += 1
            if self.first_chat_at is None:
                self.first_chat_at = time.monotonic()
        self.running += 1
        try:
            if not chat:
                self.tokens += 1
                plain(writer, 200, b'{"object":"text_completion","choices":[{"index":0,"text":"x"}]}')
            elif does.reply is not None:
                for piece in does.reply:
                    writer.write(piece.encode("latin-1"))
                    await writer.drain()
                writer.close()
            else:
                await asyncio.sleep(does.first_token_s)
                await self.stream(json.loads(body), does, writer)
        finally:
            self.running -= 1

    async def stream(self, request: dict[str, object], does: FakeVllm, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(does.tokens):
            self.tokens += 1
            choice = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}
            event(writer, {"object": "chat.completion.chunk", "model": request.get("model"), "choices": [choice]})
            await writer.drain()
            if does.exit_when_busy is not None:
                sys.stderr.write("EngineDeadError: EngineCore encountered an issue.\n")
                sys.stderr.flush()
                os._exit(does.exit_when_busy)
            await asyncio.sleep(does.token_s)
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        event(writer, {"object": "chat.completion.chunk", "model": request.get("model"), "choices": [last]})
        usage = {"prompt_tokens": 1, "completion_tokens": does.tokens, "total_tokens": 1 + does.tokens}
        event(writer, {"object": "chat.completion.chunk", "choices": [], "usage": usage})
        chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


def plain(writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "application/json") -> None:
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


def event(writer: asyncio.StreamWriter, value: dict[str, object]) -> None:
    chunk(writer, b"data: " + json.dumps(value).encode() + b"\n\n")


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def count_start(script: Path) -> int:
    with script.with_suffix(".count").open("a") as file:
        before = file.tell()
        file.write(".")
    return before


def show_surroundings(path: str, rest: list[str]) -> None:
    Path(path).write_text(json.dumps({"env": dict(os.environ), "argv": sys.argv, "rest": rest}))


async def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    options, rest = parser.parse_known_args()
    # A test that was killed cannot end what ignores SIGTERM: it ends by itself.
    asyncio.get_running_loop().call_later(LIFETIME_S, os._exit, 3)
    server = _Server(options.script, count_start(options.script), options.served_model_name)
    does = server.does
    if does.env_to:
        show_surroundings(does.env_to, rest)
    if does.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if does.child:
        await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", f"import time; time.sleep({LIFETIME_S})")
    for line in does.stderr:
        print(line, file=sys.stderr, flush=True)  # noqa: T201
    await asyncio.sleep(does.start_delay_s)
    if does.exit_code is not None:
        return does.exit_code
    try:
        listener = await asyncio.start_server(server.serve, options.host, options.port, limit=1 << 26)
    except OSError as error:
        print(f"OSError: [Errno {error.errno}] {os.strerror(error.errno or 0)}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    async with listener:
        await listener.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
