"""The composition: every room of the coordinator, wired once, started and stopped in order."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from brain_coord import __version__
from brain_coord.admin import SOCKET_NAME, AdminServer, Operation
from brain_coord.browser.network import BrowserNetwork
from brain_coord.classes.assembly import Classes
from brain_coord.classes.node_class import needs_of
from brain_coord.cluster.settings import ClusterSettings
from brain_coord.fleet.addresses import AddressBook
from brain_coord.fleet.lessons import Lessons
from brain_coord.fleet.registry import Registry, StateChange
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.gateway.bodies import SMALL_BYTES, BodyBudget
from brain_coord.gateway.decide import Decider
from brain_coord.gateway.dialects import DIALECTS
from brain_coord.gateway.entry import Gateway
from brain_coord.gateway.guard import ConnectionBounds, bounded
from brain_coord.gateway.http import ClientGone, Receive, Scope, Send, connection_of
from brain_coord.gateway.ids import random_id
from brain_coord.gateway.limits import KeyMeters
from brain_coord.gateway.quiet import quiet_app
from brain_coord.gateway.routes.context import ApiContext
from brain_coord.gateway.waiting import WaitingRoom
from brain_coord.link.endpoint import NodeGate
from brain_coord.link.orders import Orders
from brain_coord.link.socket import refuse
from brain_coord.loops import for_ever
from brain_coord.measure.lag import LoopLag
from brain_coord.measure.tokenizer import Tokenizers
from brain_coord.memory import StoredFleet, StoredKeys, StoredReceipts
from brain_coord.node_desk import NodeDesk
from brain_coord.observe.logs import REQUEST_ID
from brain_coord.observe.trace import Tracer
from brain_coord.probes.benchmarks import BenchmarkKeeper
from brain_coord.probes.canaries import CanaryKeeper
from brain_coord.probes.opinions import SecondOpinions
from brain_coord.probes.referee import Referee
from brain_coord.settings import Settings, TracingSettings, restart_needed
from brain_coord.store.retention import Retention
from brain_coord.store.store import Store
from brain_coord.tab_desk import TabDesk
from brain_coord.web.errors import error_page
from brain_coord.web.watch import Watch
from brain_node.contract.catalog import Catalog, load_catalog
from brain_node.contract.limits import FRAME_BYTES
from brain_node.contract.messages import Limits

if TYPE_CHECKING:
    from brain_coord.cluster.replica import Replica

log = structlog.get_logger("brain.coordinator")

LINK_PATH = "/node/v1/link"
SLOT_PATH = "/node/v1/slot"
CLUSTER_PREFIX = "/cluster/v1/"


@dataclass(slots=True)
class Coordinator:
    """A running coordinator, and the ASGI application over it."""

    settings: Settings
    store: Store
    catalog: Catalog
    registry: Registry
    lag: LoopLag
    classes: Classes
    gateway: Gateway
    bounds: ConnectionBounds
    gate: NodeGate
    fleet: StoredFleet
    scores: ScoreKeeper
    benchmarks: BenchmarkKeeper
    canaries: CanaryKeeper
    opinions: SecondOpinions
    watch: Watch
    browser: BrowserNetwork
    quiet: Any
    admin: AdminServer
    cluster: "Replica | None" = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def start(cls, settings: Settings) -> "Coordinator":
        """Open the store and wire everything.

        Raises:
            CatalogError, StoreError, SignerError: with code, cause and next step.
        """
        catalog = load_catalog(settings.catalog)
        store = await Store.open(settings.data_dir, settings.store_url, options=settings.store)
        lag = LoopLag()
        registry = Registry(settings.heartbeat_s, needs=needs_of(catalog), lessons=Lessons(lag))
        scores = ScoreKeeper(store, registry)
        fleet = StoredFleet(store, registry, scores, catalog, settings.token_required)
        waiting = WaitingRoom(settings.queue_limit, registry.queued)
        classes = Classes(registry, catalog, waiting.capacity, _later(waiting.capacity))
        classes.configure(settings.classes)
        receipts = StoredReceipts(store)
        gateway = Gateway(
            keys=StoredKeys(store),
            decider=Decider(classes.backends, catalog, settings.community_first, settings.gateway.queue_s),
            waiting=waiting,
            journal=receipts,
            settings=settings.gateway,
            meters=KeyMeters(settings.plans),
            bodies=BodyBudget(settings.gateway.bodies_bytes),
        )
        store.expect(lambda: len(gateway.running))
        gate = NodeGate(
            registry=registry,
            admission=fleet,
            lag=lag,
            coordinator_key=await _public_key(store),
            limits=Limits(
                body_bytes=settings.gateway.body_bytes, frame_bytes=FRAME_BYTES, spare_slots=settings.spare_slots
            ),
            ping_s=settings.ping_s,
            addresses=AddressBook(settings.addresses),
            bind_slots=settings.bind_slots,
        )
        referee = Referee(registry)
        canaries = CanaryKeeper(registry, catalog, referee, settings.probes)
        opinions = SecondOpinions(registry, referee, settings.probes, tokenizers_of(catalog, settings.tokenizers))
        gateway.watch = opinions
        gateway.tracer = _tracer(settings.tracing)
        orders = Orders(registry)
        benchmarks = BenchmarkKeeper(registry, catalog, store.save_benchmark)
        api = ApiContext(gateway, registry, receipts, lag, __version__)
        quiet = quiet_app(api, error_page(settings.root_path))
        desk = NodeDesk(store, registry, scores, orders, gate.addresses, fleet.know)
        browser = BrowserNetwork(
            heartbeat_s=settings.heartbeat_s,
            lag=lag,
            coordinator_key=gate.coordinator_key,
            addresses=gate.addresses,
            browser_class=classes.browser,
            data_dir=settings.data_dir,
            archive=store,
            base=settings.root_path,
        )
        watch = Watch(
            gateway=gateway,
            registry=registry,
            store=store,
            receipts=receipts,
            data_dir=settings.data_dir,
            explain=scores.explanation,
            skips=lambda node: registry.skip_counts(node, monotonic()),
            actions={
                "ban": desk.ban,
                "unban": desk.unban,
                "trust": desk.trust,
                "untrust": desk.untrust,
                "drain": desk.drain,
                "undrain": desk.undrain,
            },
            base=settings.root_path,
            tabs=browser.figures,
        )
        quiet.include_router(watch.router)
        browser.tabs.on_capacity.append(waiting.capacity)
        quiet.include_router(browser.router(gateway))
        watch.site.tabs = tab_desk = TabDesk(browser.memory)
        admin = AdminServer(
            settings.data_dir / SOCKET_NAME,
            {**operations(registry, classes), **desk.operations(), **tab_desk.operations(), "top": watch.top},
        )
        bounds = replace(settings.connections)
        self = cls(
            settings,
            store,
            catalog,
            registry,
            lag,
            classes,
            gateway,
            bounds,
            gate,
            fleet,
            scores,
            benchmarks,
            canaries,
            opinions,
            watch,
            browser,
            quiet,
            admin,
        )
        await fleet.load()
        if settings.cluster is not None:
            self.cluster = self._join(settings.cluster, desk)
            api.cluster = watch.cluster = self.cluster.health
        admin.operations["status"] = self._status
        registry.on_capacity.append(waiting.capacity)
        registry.on_offer.append(benchmarks.check)
        registry.on_event.append(scores.event)
        registry.on_doubt.append(canaries.doubt)
        registry.on_slots.append(fleet.slots)
        if settings.log_level == "debug":  # with each job a node's state may change
            registry.on_change.append(_log_change)
        await admin.start()
        self._run(lag.run, gate.watch, benchmarks.run, scores.run, watch.run, classes.prober.run)
        retention = Retention(store, settings.store.receipts_days)
        if self.cluster is not None:
            retention.shared_is_ours = self.cluster.leads
        self._run(browser.run, retention.run)
        self._run(canaries.run, opinions.run, orders.tell_skips)
        return self

    def _join(self, settings: ClusterSettings, desk: NodeDesk) -> "Replica":
        """Be one of several coordinators. What that needs is imported by those alone who are."""
        from brain_coord.cluster.replica import Replica

        gateway, gate = self.gateway, self.gate
        replica = Replica(
            settings,
            settings.name or str(self.store.chain),
            self.registry,
            self.scores,
            gateway.meters,
            gate,
            self.settings.gateway.body_bytes,
            gateway.bodies,
            desk.sync,
        )
        gateway.shared = replica.meters
        for nodes in self.classes.nodes:
            nodes.elsewhere = replica.target
        desk.on_decided.append(replica.decided)
        self._run(replica.run)
        return replica

    async def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        """The coordinator in short, for its operator."""
        health, nodes = self.store.health, list(self.registry.nodes.values())
        return {
            "version": __version__,
            "chain": self.store.chain,
            "leaving": self.gateway.leaving or self.gateway.draining,
            "running": len(self.gateway.running),
            "waiting": len(self.gateway.waiting),
            "nodes": {"connected": sum(node.connected for node in nodes), "known": len(nodes)},
            "receipts": {"state": health.state, "reason": health.reason, "spooled": health.spooled},
            "cluster": None if self.cluster is None else self.cluster.status(),
        }

    def _run(self, *loops: Callable[[], Awaitable[None]]) -> None:
        self._tasks += [asyncio.create_task(for_ever(loop)) for loop in loops]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """ASGI: the hot routes and the websockets go straight to their rooms, everything else through FastAPI."""
        path = scope["path"]
        if root_path := self.settings.root_path:
            path = path.removeprefix(root_path)
        if scope["type"] == "websocket":
            return self._socket(path, scope, receive, send)
        dialect = DIALECTS.get(path)
        if dialect is not None:
            return self.gateway.serve(dialect, scope, receive)
        if self.cluster is not None and path.startswith(CLUSTER_PREFIX):
            return self.cluster.serve_http(path, scope, receive, send)
        return self._quiet({**scope, "path": path}, receive, send)

    async def _socket(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if path == LINK_PATH:
            await self.gate.link(scope, receive, send)
        elif path == SLOT_PATH:
            await self.gate.slot(scope, receive, send)
        elif self.cluster is not None and path.startswith(CLUSTER_PREFIX):
            await self.cluster.serve_socket(path, scope, receive, send)
        elif self.browser.gate.serves(path):
            await self.browser.gate(path, scope, receive, send)
        else:
            await refuse(receive, send, 404, f"there is no websocket at {path}")

    async def _quiet(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pages take small forms only, from anybody; what is large belongs to the API, which asks for a key first."""
        limit_bytes = SMALL_BYTES
        if scope["path"].startswith("/v1/"):
            limit_bytes = self.settings.gateway.body_bytes
            REQUEST_ID.set(request_id := "req-" + random_id())
            connection_of(scope).more_lines += f"x-request-id: {request_id}\r\n".encode()
        lease = self.gateway.bodies.lease("")
        try:
            await self.quiet(scope, bounded(receive, limit_bytes, lease), send)
        except ClientGone:
            log.info("client left before the request was whole", path=scope["path"])
        finally:
            lease.release()

    def reconfigure(self, wanted: Settings) -> list[str]:
        """Take new settings without touching what runs; returns those that need a restart, and stay as they are."""
        settings, kept = restart_needed(self.settings, wanted)
        self.settings = settings
        gateway = self.gateway
        self.classes.configure(settings.classes)
        gateway.settings = settings.gateway
        gateway.bodies.limit_bytes = settings.gateway.bodies_bytes
        gateway.meters.plans = settings.plans
        gateway.decider = replace(
            gateway.decider, community_first=settings.community_first, wait_s=settings.gateway.queue_s
        )
        gateway.waiting.limit = settings.queue_limit
        self.fleet.token_required = settings.token_required
        self.gate.addresses.limits, self.gate.bind_slots = settings.addresses, settings.bind_slots
        self.canaries.settings = self.opinions.settings = settings.probes
        self.bounds.take(settings.connections)
        gateway.waiting.capacity()
        return kept

    async def drain(self) -> None:
        """Refuse new requests, let streams end within the limit, end the rest cleanly, then let the nodes go."""
        limit_s = self.settings.drain_s
        if self.cluster is not None:
            self.gateway.leaving = True
            await self.cluster.leave()
        self.watch.close()
        drains = [self.gateway.drain(limit_s), self.browser.drain(limit_s)]
        if self.cluster is not None:
            drains.append(self.cluster.drain(limit_s))
        await asyncio.gather(*drains)
        await self.browser.close_all()
        await self.gate.close_all()

    async def stop(self) -> None:
        """End every loop and close the store; what was acknowledged is durable already."""
        await self.admin.stop()
        await self.benchmarks.stop()
        await self.canaries.stop()
        await self.browser.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.classes.close()
        if self.gateway.tracer is not None:
            await self.gateway.tracer.close()
        if self.cluster is not None:
            await self.cluster.close()
        await self.scores.flush()
        await self.store.close()


async def _public_key(store: Store) -> str:
    """The key that signs receipts, as nodes prove themselves against it."""
    history = [each for each in await store.signers() if each["chain"] == store.chain]
    current = history[0]["current"]
    return next(str(key["public_key"]) for key in history[0]["keys"] if key["key_id"] == current)


def _tracer(settings: TracingSettings) -> Tracer | None:
    """Where requests are told as traces; without an endpoint nothing of it is even imported."""
    if settings.otlp_url is None:
        return None
    from brain_coord.observe.tracing import Tracing, exporting_to

    return Tracing(exporting_to(settings.otlp_url), settings.share)


def tokenizers_of(catalog: Catalog, folder: Path | None) -> Tokenizers:
    """Those in the operator's folder, and of models whose weights are in a local folder anyway."""
    local = [(model.id, model.local_folder) for model in catalog if model.local_folder is not None]
    return Tokenizers.load(local if folder is None else [*local, *((model.id, folder / model.id) for model in catalog)])


def _later(capacity: Callable[[], None]) -> Callable[[float], None]:
    """Tell waiting requests at the end of a pause; a moment after it, as the loop's clock is coarser than ours."""
    loop = asyncio.get_running_loop()

    def later(delay_s: float) -> None:
        loop.call_later(delay_s + 0.005, capacity)

    return later


def operations(registry: Registry, classes: Classes) -> dict[str, Operation]:
    """What the operator's commands may ask of a running coordinator."""

    async def nodes(_: dict[str, Any]) -> list[dict[str, Any]]:
        return [node.public_view() for node in registry]

    async def targets(_: dict[str, Any]) -> list[dict[str, Any]]:
        return classes.view()

    return {"nodes": nodes, "targets": targets}


def _log_change(change: StateChange) -> None:
    log.debug("node state", node=change.node_id, before=change.before, after=change.after, reason=change.reason)
