"""Run the coordinator under uvicorn, and stop it cleanly however many websockets and streams are open."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import structlog
import uvicorn

from brain_coord.coordinator import Coordinator
from brain_coord.gateway.connection import ClientConnection
from brain_coord.gateway.cors import with_cors
from brain_coord.settings import Settings

log = structlog.get_logger("brain.server")


class PortTaken(Exception):  # noqa: N818
    """The address cannot be listened on."""


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us: it would close every websocket at once, and wait for streams for ever."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            raise PortTaken(f"cannot listen on {self.config.host}:{self.config.port}") from None
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(coordinator: Coordinator, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        with_cors(coordinator, settings.gateway.cors_origins),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="uvloop",
        http=type("Connection", (ClientConnection,), {"stall_s": settings.gateway.stall_s}),
        ws="websockets-sansio",
        ws_max_size=512 * 1024,
        ws_ping_interval=20.0,
        ws_ping_timeout=None,  # a late pong is no proof of death; silence is judged by heartbeats
        ws_per_message_deflate=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        backlog=2048,
        h11_max_incomplete_event_size=64 * 1024,
    )


async def serve(settings: Settings, on_ready: Callable[[Coordinator, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends at once.

    Args:
        settings: what to run with.
        on_ready: told once the port accepts connections, with the port that was bound.
    """
    coordinator = await Coordinator.start(settings)
    server = _Server(_config(coordinator, settings))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopping.is_set():
            server.force_exit = True
            server.should_exit = True
            for task in asyncio.all_tasks(loop):
                task.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    serving = asyncio.create_task(server.serve())
    try:
        started = asyncio.create_task(server.ready.wait())
        await asyncio.wait((started, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            started.cancel()
            serving.result()
            return
        on_ready(coordinator, server.servers[0].sockets[0].getsockname()[1])
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        log.info("stopping", running=len(coordinator.gateway.running))
        await coordinator.drain()
        server.should_exit = True
        await serving
    finally:
        await coordinator.stop()
        log.info("stopped")
