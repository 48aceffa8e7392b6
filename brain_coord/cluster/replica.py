"""One coordinator as a member of its cluster: says what is linked here, takes in what the others say, passes jobs between them."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from time import monotonic
from typing import Any, Final

import structlog

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.cluster import stray_slots
from brain_coord.cluster.announcer import FLUSH_S, Announcer
from brain_coord.cluster.bus import Bus
from brain_coord.cluster.departures import Departures
from brain_coord.cluster.hop_client import SLOT_PATH
from brain_coord.cluster.hop_server import HopServer
from brain_coord.cluster.hops_out import HopsOut
from brain_coord.cluster.meters import ClusterMeters
from brain_coord.cluster.mirror import Mirror
from brain_coord.cluster.remote_target import RemoteTarget
from brain_coord.cluster.secret import Doorkeeper
from brain_coord.cluster.settings import ClusterSettings
from brain_coord.cluster.spread import ROUND_S
from brain_coord.cluster.view import CLOCKS_S, PROTOCOL, Effect, Kind, Peer, SharedView
from brain_coord.fleet.node import Node
from brain_coord.fleet.registry import Registry
from brain_coord.fleet.scores import ScoreKeeper
from brain_coord.gateway.bodies import BodyBudget
from brain_coord.gateway.http import Receive, Scope, Send
from brain_coord.gateway.limits import KeyMeters
from brain_coord.link.endpoint import NodeGate
from brain_coord.routing.vocabulary import ResourceClass

log = structlog.get_logger("brain.cluster")

PREFIX: Final = "/cluster/"
SYNC_S: Final = 60.0
"""How often the operators' decisions are read from the store, in case word of one was lost."""

MOVE_S: Final = 10.0
"""A node on its way from one coordinator to the next pauses for 4 s at most; so long its absence counts for nothing."""


class Replica:
    """Owned by the event loop's thread.

    Args:
        settings: of the cluster.
        name: of this coordinator.
        registry: of the nodes; those linked elsewhere are in it too.
        scores: this coordinator keeps the standing of the nodes that it holds.
        meters: of the API keys here.
        gate: the nodes' endpoints.
        body_bytes: largest body of a job.
        bodies: the memory for the bodies of all requests here.
        sync: reads what operators decided of one node, or of all, from the store and carries it out.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        name: str,
        registry: Registry,
        scores: ScoreKeeper,
        meters: KeyMeters,
        gate: NodeGate,
        body_bytes: int,
        bodies: BodyBudget,
        sync: Callable[[str | None], Coroutine[Any, Any, None]],
    ) -> None:
        self.settings = settings
        self.name = name
        self.run_id = secrets.token_hex(6)
        self.view = SharedView(name, self.run_id, settings.ttl_s)
        self.bus = Bus(settings.url, settings.secret, self._hear, self._came)
        self.meters = ClusterMeters(
            self.bus, meters, settings.secret.prefix, f"{name}:{self.run_id}", 3 * settings.ttl_s
        )
        self._door = Doorkeeper(settings.secret, name, self.run_id)
        self.server = HopServer(registry, self._door, self.view.own.get, body_bytes, bodies, self._mark)
        self.hops = HopsOut(settings, name, self.view, self._follow, self._spawn)
        self._announcer = Announcer(self.view, registry, self.server.given, name, self.run_id)
        self._registry = registry
        self._gate = gate
        self._sync = sync
        self.departures = Departures(self.view, registry)
        self._mirror = Mirror(self.view, registry, scores, self._spawn)
        self._echo_at = -settings.ttl_s
        self._together = False
        self._twin = False
        self._strangers: set[str] = set()
        self._wall_ahead_s: dict[str, float] = {}
        """How far the wall clocks of the others are ahead of ours, as their last beats say."""
        self._apart: set[str] = set()
        self.leaving = False
        self._tasks: set[asyncio.Task[object]] = set()
        registry.on_touch.append(self._announcer.mark)
        registry.on_heartbeat.append(self._announcer.mark)
        registry.forward = self.hops.forward
        scores.counts = self._counts
        gate.ticket_prefix = name + stray_slots.MARK
        gate.stray = self.hops.stray

    # --- what runs ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Everything that goes on by itself; runs for ever."""
        async with asyncio.TaskGroup() as tasks:
            for loop in (
                self.bus.run(),
                self.meters.run(),
                self._beats(),
                self._flushes(),
                self._syncs(),
                self._spreads(),
            ):
                tasks.create_task(loop)

    async def close(self) -> None:
        """Say goodbye and hang up."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.hops.close()
        await self.bus.close()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _mark(self, node: Node) -> None:
        self._announcer.mark(node)

    async def _came(self) -> None:
        """Redis is there, perhaps again: say what we have. The others' next beats tell what we missed."""
        self._announcer.tell_all()
        await self._beat()
        self._spawn(self._sync(None))

    async def _beats(self) -> None:
        while True:
            await self._beat()
            now = monotonic()
            peers = dict(self.view.peers)
            late = self.view.expire(now)
            self._follow(late)
            together = self.together
            if together:
                # Without Redis the silence of the others says nothing of them: what they stream for us goes on.
                for effect in late:
                    if effect.kind is Kind.LEFT:
                        self._spawn(self._give_up(peers[effect.subject]))
            if together is not self._together:
                self._together = together
                if together:
                    log.info("together with the cluster", replicas=self.view.present())
                else:
                    log.warning("alone: Redis is away", cause=self.bus.fault, limits="hold for this coordinator alone")
            if together:  # else the last beats are old
                self._compare_clocks()
            self.meters.recount()
            await asyncio.sleep(self.settings.beat_s)

    async def _beat(self) -> None:
        await self.bus.send([self._announcer.beat(self.settings.address, leaving=self.leaving)])

    async def _flushes(self) -> None:
        while True:
            await self._announcer.wake.wait()
            await asyncio.sleep(FLUSH_S)
            if messages := self._announcer.gathered(monotonic()):
                await self.bus.send(messages)

    @property
    def together(self) -> bool:
        """Whether Redis takes our messages and gives them back: only then do the others hear us, and we them."""
        return self.bus.connected and monotonic() - self._echo_at <= self.settings.ttl_s

    async def _syncs(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            await self._sync(None)

    def decided(self, node_id: str) -> None:
        """An operator decided something about a node here: the others read it from the store."""
        self._spawn(self.bus.send([self._announcer.decided(node_id)]))

    # --- what the others say --------------------------------------------------------------------------------

    def _hear(self, message: dict[str, Any]) -> None:
        now = monotonic()
        if message["from"] == self.name and message["run"] == self.run_id:
            self._echo_at = now
            return
        if message["type"] == "beat" and message.get("protocol") == PROTOCOL:
            self._wall_ahead_s[message["from"]] = message["wall_s"] - time.time()
        self._announcer.claim_marked(now)
        self._follow(self.view.hear(message, now))

    def _compare_clocks(self) -> None:
        """Nothing waits for wall clocks, and yet receipts and tokens are dated by them."""
        ahead = self._wall_ahead_s = {name: self._wall_ahead_s.get(name, 0.0) for name in self.view.peers}
        apart = {name for name, ahead_s in ahead.items() if abs(ahead_s) > CLOCKS_S}
        for name in sorted(apart - self._apart):
            log.warning("the clocks are apart", replica=name, ahead_s=round(ahead[name]), dates="receipts and tokens")
        for name in sorted(self._apart - apart):
            log.info("the clocks agree again", replica=name)
        self._apart = apart

    def _follow(self, effects: Iterable[Effect]) -> None:
        for kind, subject in effects:
            if kind is Kind.NODE:
                self._mirror.take(subject)
            elif kind is Kind.LOAD:
                self._mirror.loaded(subject)
            elif kind is Kind.ASK:
                self._announcer.ask(subject)
            elif kind is Kind.TELL:
                self._announcer.tell_all()
            elif kind is Kind.DECIDED:
                self._spawn(self._sync(subject))
            elif kind is Kind.TWIN:
                if not self._twin:
                    log.error("another coordinator of the cluster has this one's name; give each its own", name=subject)
                self._twin = True
            elif kind is Kind.STRANGER:
                if subject not in self._strangers:
                    log.warning("a coordinator of another version; each goes on by itself", replica=subject)
                self._strangers.add(subject)
            elif kind is Kind.CAME:
                log.info("coordinator came", replica=subject)
            elif kind is Kind.LEFT:
                log.warning("coordinator left", replica=subject)

    async def _give_up(self, peer: Peer) -> None:
        """A coordinator was not heard: if it does not answer either, end what it streams, as no connection may tell."""
        if await self.hops.answers(peer):
            log.warning("a coordinator answers, and is not heard over Redis", replica=peer.name)
            return
        self.hops.cut(peer.name)
        self.server.cancel_from(peer.name)

    def _counts(self, node: Node) -> bool:
        """Whether we count a node's uptime: its holder does, and for those that are away one of us, if we all agree on whom."""
        if node.connected:
            return node.session is not None
        if self.view.claimed(node.node_id):
            return False  # linked to one that leaves, or that we cannot reach: that one counts
        return self.leads() and (node.left_at is None or monotonic() - node.left_at > MOVE_S)

    def leads(self) -> bool:
        """Whether we look after what belongs to nobody: one of those that see each other does."""
        return self.together and not self.leaving and self.view.leader() == self.name

    # --- hops ---------------------------------------------------------------------------------------------------------

    def target(
        self, node: Node, model: str, resource_class: ResourceClass, samples: ClassSamples, health: TargetHealth
    ) -> Target:
        """A node elsewhere as a target."""
        where = node.elsewhere
        assert where is not None
        return RemoteTarget(self.hops, self._registry, node, where, model, resource_class, samples, health)

    async def serve_http(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A hop of another coordinator."""
        await self.server(path, scope, receive, send)

    async def serve_socket(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A slot that another coordinator passes on."""
        if path == SLOT_PATH:
            await stray_slots.take(self._door, self._gate.slot, scope, receive, send)

    # --- spreading nodes ----------------------------------------------------------------------------------------------

    async def _spreads(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            await self.spread(monotonic())

    async def spread(self, now: float) -> None:
        """One round, unless that is no time for it."""
        if self.together and not self.leaving:
            await self.departures.spread(now)

    # --- stopping -----------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Go on for a moment, so that the load balancer sees it; then tell the others, and let the nodes go to them."""
        await asyncio.sleep(self.settings.leave_s)
        self.leaving = self._gate.draining = self.server.draining = True
        await self._beat()
        self._spawn(self.departures.let_go())

    async def drain(self, limit_s: float) -> None:
        """Let the jobs of others end within the limit, end the rest."""
        try:
            async with asyncio.timeout(limit_s):
                await self.server.idle.wait()
        except TimeoutError:
            self.server.cancel_all()

    # --- for people ---------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        """Whether the cluster is together, in short."""
        together, uncounted = self.together, self.meters.fault
        away = None if together else self.bus.fault or "Redis does not give our own messages back"
        return {
            "state": "together" if together else "alone",
            "reason": away or uncounted,
            "replicas": self.view.present(),
            "limits": "hold for this coordinator alone" if away or uncounted else "hold across the cluster",
            "nodes_moved": self.departures.moved,
        }

    def status(self) -> dict[str, Any]:
        """The cluster as this coordinator sees it, for its operator."""
        now = monotonic()
        held = self.departures.held()
        own = {
            "name": self.name,
            "address": self.settings.address,
            "leaving": self.leaving,
            "reachable": True,
            "heard_s_ago": 0.0,
            "clock_ahead_s": 0.0,
        }
        others = [
            {
                "name": peer.name,
                "address": peer.address,
                "leaving": peer.leaving,
                "reachable": peer.reachable,
                "heard_s_ago": round(now - peer.heard_at, 1),
                "clock_ahead_s": round(self._wall_ahead_s.get(peer.name, 0.0), 1),
            }
            for peer in self.view.peers.values()
        ]
        rows = [{**row, "nodes": held[str(row["name"])]} for row in (own, *others)]
        return {
            **self.health(),
            "name": self.name,
            "name_taken": self._twin,
            "coordinators": sorted(rows, key=lambda row: str(row["name"])),
            "hops_out": len(self.hops),
            "hops_in": len(self.server.running),
        }
