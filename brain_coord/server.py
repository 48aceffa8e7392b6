"""Run the coordinator under uvicorn, and stop it cleanly however many websockets and streams are open."""

import asyncio
import contextlib
import gc
import resource
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog
import uvicorn

from brain_coord.config.faults import ConfigError
from brain_coord.config.load import Loaded
from brain_coord.coordinator import Coordinator
from brain_coord.gateway.cors import with_cors
from brain_coord.gateway.guard import GuardedConnection
from brain_coord.gateway.http import Receive, Scope, Send
from brain_coord.gateway.tls import Door, tls_context
from brain_coord.link.wire import NodeSocket
from brain_coord.settings import Settings

log = structlog.get_logger("brain.server")


GARBAGE_THRESHOLDS: Final = (20_000, 20, 50)
"""Requests leave few cycles behind, and a full collection looks at every object of a large fleet: a rare one is enough."""


class CannotListen(Exception):  # noqa: N818
    """The address cannot be listened on: in use, not of this machine, or unknown."""


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us: it would close every websocket at once, and wait for streams for ever."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as ended:
            cause = ended.__context__  # uvicorn logs what was wrong and leaves
            why = f": {cause.strerror.rpartition(': ')[2]}" if isinstance(cause, OSError) and cause.strerror else ""
            raise CannotListen(f"cannot listen on {self.config.host}:{self.config.port}{why}") from None
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _App:
    """The application as it is now: a reload may name other origins."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.renew()

    def renew(self) -> None:
        self._app = with_cors(self._coordinator, self._coordinator.settings.gateway.cors_origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        answered: Awaitable[None] = self._app(scope, receive, send)
        return answered


def _config(
    coordinator: Coordinator, app: _App, settings: Settings, context: ssl.SSLContext | None = None
) -> uvicorn.Config:
    kind = GuardedConnection.bound_by(coordinator.bounds)
    return uvicorn.Config(
        app,
        interface="asgi3",
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="uvloop",
        http=kind if context is None else Door.before(kind, context),
        ws=NodeSocket,
        ws_max_size=512 * 1024,
        ws_ping_interval=20.0,
        ws_ping_timeout=None,  # a late pong is no proof of death; silence is judged by heartbeats
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=10,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        backlog=2048,
        h11_max_incomplete_event_size=64 * 1024,
    )


class Reloader:
    """Takes a changed configuration on SIGHUP. A bad one changes nothing."""

    def __init__(
        self, coordinator: Coordinator, app: _App, context: ssl.SSLContext | None, read: Callable[[], Loaded]
    ) -> None:
        self._coordinator = coordinator
        self._app = app
        self._context = context
        self._read = read
        self._lock = asyncio.Lock()

    async def reload(self) -> None:
        """Read the configuration again and take what can change while requests run."""
        async with self._lock:
            try:
                loaded = await asyncio.to_thread(self._read)
            except ConfigError as error:
                faults = [str(each) for each in error.faults]
                log.error("configuration not reloaded, the old one goes on", faults=faults)  # noqa: TRY400
                return
            for warning in loaded.warnings:
                log.warning("configuration", warning=warning)
            kept = self._coordinator.reconfigure(loaded.settings)
            self._app.renew()
            settings = self._coordinator.settings
            if self._context is not None and settings.tls_cert is not None:
                self._context.load_cert_chain(settings.tls_cert, settings.tls_key)
            log.info("configuration reloaded", needs_restart=kept)


def _settle_memory() -> None:
    """What was loaded to start stays; the collector need not look at it with every request's garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def _raise_open_files() -> int:
    """Have as many files open as the system lets us, and say how many that is.

    The usual limit of a shell, 1,024, is for programs that use `select`; so many idle connections would be all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a system that bounds it elsewhere too
        return soft
    return hard


async def serve(
    settings: Settings, on_ready: Callable[[Coordinator, int], None], read: Callable[[], Loaded] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends at once. SIGHUP reloads the configuration.

    Args:
        settings: what to run with.
        on_ready: told once the port accepts connections, with the port that was bound.
        read: reads the configuration again.
    """
    coordinator = await Coordinator.start(settings)
    coordinator.bounds.files = _raise_open_files()
    app = _App(coordinator)
    context = None if settings.tls_cert is None else tls_context(settings.tls_cert, settings.tls_key)
    server = _Server(_config(coordinator, app, settings, context))
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
    reloads: set[asyncio.Task[None]] = set()
    if read is not None:
        reloader = Reloader(coordinator, app, context, read)

        def on_hang_up() -> None:
            task = loop.create_task(reloader.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        loop.add_signal_handler(signal.SIGHUP, on_hang_up)
    serving = asyncio.create_task(server.serve())
    try:
        started = asyncio.create_task(server.ready.wait())
        await asyncio.wait((started, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            started.cancel()
            serving.result()
            return
        _settle_memory()
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
