"""The two websocket endpoints that nodes dial: `/node/v1/link` and `/node/v1/slot`."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

import structlog

from brain_coord.fleet.addresses import AddressBook, network_of
from brain_coord.fleet.node import Node, Session
from brain_coord.fleet.registry import Registry
from brain_coord.link.handshake import NotTaken, hear_hello
from brain_coord.link.orders import DRAIN_S, GOING_AWAY, POLICY
from brain_coord.link.slot import Receive, Send, Slot, SlotQueue
from brain_coord.link.socket import LinkSocket, accept, frames_of, header, peer_address, refuse
from brain_coord.link.turnstile import Turnstile
from brain_coord.measure.lag import LoopLag
from brain_node.contract.limits import PROTOCOL
from brain_node.contract.messages import (
    Drain,
    Heartbeat,
    Hello,
    Limits,
    MessageError,
    Notice,
    Offer,
    OfferChanged,
    OpenSlots,
    Ping,
    Pong,
    Refusal,
    Refused,
    Report,
    Welcome,
    decode,
)

log = structlog.get_logger("brain.link")

FIRST_PINGS_S: Final = (0.0, 0.1, 0.3, 1.0)
"""Pings right after the welcome, so that a new node has an RTT within two seconds."""

ADDRESS_RETRY_S: Final = 300.0
TRY_LATER: Final = 1013


class Admission(Protocol):
    """Who may join, and what of an offer is accepted."""

    async def admit(self, hello: Hello, address: str) -> Node | Refused:
        """The node a proved hello belongs to, or why it may not join. Redeems a join token."""

    def judge(self, node: Node, offer: Offer, report: Report) -> tuple[Refusal, ...]:
        """The models in an offer that are not routed to this node, each with its reason."""


Stray = Callable[[str, MutableMapping[str, Any], Receive, Send], Awaitable[bool]]


@dataclass(slots=True)
class NodeGate:
    """Runs the link and slot endpoints over one registry."""

    registry: Registry
    admission: Admission
    lag: LoopLag
    coordinator_key: str
    limits: Limits
    ping_s: float
    addresses: AddressBook = field(default_factory=AddressBook)
    bind_slots: bool = True
    """A slot must come from where its link came from: a stolen ticket is worth nothing elsewhere."""
    draining: bool = False
    ticket_prefix: str = ""
    stray: Stray | None = None
    """In a cluster: passes a slot on to the coordinator that gave its ticket; `False` when none did."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _warned: set[str] = field(default_factory=set)
    _turnstile: Turnstile = field(default_factory=Turnstile)

    async def link(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One link, from handshake to end."""
        if self.draining:
            await refuse(receive, send, 503, "this coordinator is shutting down; try again shortly")
            return
        address = peer_address(scope)
        if too_many := self.addresses.attempt(address, monotonic()):
            await refuse(receive, send, 429, too_many)
            return
        await self._turnstile.enter()
        if not await accept(receive, send):
            return
        socket = LinkSocket(receive, send)
        hello = await self._hello(socket, address)
        if hello is None:
            return
        known = self.registry.get(hello.node_id) is not None
        if too_many := self.addresses.admit(address, hello.node_id, monotonic(), known=known):
            sentence = f"{too_many}; the coordinator's operator can raise the limit"
            refusal = _refused("address_limit", sentence, retry=True, after_s=ADDRESS_RETRY_S)
            await self._refuse(socket, refusal, address, hello.node_id)
            return
        node = await self.admission.admit(hello, address)
        if isinstance(node, Refused):
            await self._refuse(socket, node, address, hello.node_id)
            return
        self.addresses.joined(address, node.node_id, monotonic(), known=known)
        try:
            await self._session(node, hello, socket, address)
        finally:
            self.addresses.left(address, node.node_id)

    async def _session(self, node: Node, hello: Hello, socket: LinkSocket, address: str) -> None:
        session = await self._open(node, hello, socket, address)
        reason = "the coordinator stopped"
        pinger = asyncio.create_task(self._ping(node, session))
        try:
            reason = await self._listen(node, session, socket)
        finally:
            pinger.cancel()
            self._warned.discard(session.session_id)
            self.registry.disconnect(node, session, reason)
            await socket.close(GOING_AWAY, reason)

    async def _hello(self, socket: LinkSocket, address: str) -> Hello | None:
        heard = await hear_hello(socket, self.coordinator_key, other_version=_other_version, turn=self._turnstile.enter)
        if heard is None:
            return None
        if isinstance(heard, NotTaken):
            await self._refuse(socket, heard.refused, address, heard.node_id)
            return None
        hello, dropped = heard
        if dropped:
            log.warning("claims dropped", node=hello.node_id, fields=sorted(set(dropped)))
        return hello

    async def _refuse(self, socket: LinkSocket, refused: Refused, address: str, node_id: str | None) -> None:
        log.warning("node refused", node=node_id, address=address, code=refused.code, reason=refused.message)
        await socket.send(refused)
        await socket.close(TRY_LATER if refused.retry else POLICY, refused.code)

    async def _open(self, node: Node, hello: Hello, socket: LinkSocket, address: str) -> Session:
        now = monotonic()
        older = node.session
        session = Session(
            session_id=secrets.token_hex(8),
            link=socket,
            slots=SlotQueue(lambda n: self._spawn(socket.send(OpenSlots(n=n)))),
            ticket=self.ticket_prefix + secrets.token_urlsafe(24),
            address=address,
            joined_at=now,
            last_heard=now,
        )
        refused = self.admission.judge(node, hello.offer, hello.report)
        barred = {refusal.model for refusal in refused}
        if older is not None:
            node.guard.superseded(now)
        node.reported.agent_version = hello.agent_version
        # The welcome leaves before the registry knows the session: a job must never overtake it.
        await socket.send(
            Welcome(
                session=session.session_id,
                heartbeat_s=self.registry.heartbeat_s,
                ping_s=self.ping_s,
                slot_ticket=session.ticket,
                accepted=tuple(model.id for model in hello.offer.models if model.id not in barred),
                refused=refused,
                limits=self.limits,
            )
        )
        self.registry.connect(node, session, hello.report, hello.offer, refused)
        if older is not None:
            self._spawn(older.link.close(POLICY, "superseded by a newer session of this node"))
        log.info("node joined", node=node.node_id, address=address, models=node.models, operator=node.operator)
        if node.operator_drain:
            await socket.send(Drain(deadline_s=DRAIN_S))
        return session

    async def _listen(self, node: Node, session: Session, socket: LinkSocket) -> str:
        complaints: set[str] = set()
        while True:
            text = await socket.text()
            if text is None:
                return "its link closed"
            now = monotonic()
            session.last_heard = now
            dropped: list[str] = []
            try:
                message = decode(text, dropped)
            except MessageError as error:
                dropped.append(str(error))
                message = None
            if new := set(dropped) - complaints:
                complaints |= new  # once per session: a driver that says NaN says it in every heartbeat
                log.warning("claims dropped", node=node.node_id, fields=sorted(new))
            if node.session is not session:
                return "superseded by a newer session"
            if isinstance(message, Pong):
                sent = node.measured.rtt.sent_at(message.n)
                stalled = sent is not None and self.lag.stalled_s(sent, now) > 0
                node.measured.rtt.pong(message.n, now, stalled=stalled)
            elif isinstance(message, Heartbeat):
                self.registry.heartbeat(node, message)
            elif isinstance(message, OfferChanged):
                report = message.report or node.reported.report
                self.registry.offer(
                    node, message.offer, message.report, self.admission.judge(node, message.offer, report)
                )

    async def _ping(self, node: Node, session: Session) -> None:
        for delay in FIRST_PINGS_S:
            await asyncio.sleep(delay)
            await session.link.send(Ping(n=node.measured.rtt.ping(secrets.randbits(48), monotonic())))
        while True:
            await asyncio.sleep(self.ping_s)
            await session.link.send(Ping(n=node.measured.rtt.ping(secrets.randbits(48), monotonic())))

    async def slot(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One slot connection, from handshake to end."""
        scheme, _, ticket = (header(scope, b"authorization") or "").partition(" ")
        node = self.registry.by_ticket(ticket) if scheme.lower() == "bearer" else None
        if node is None or node.session is None:
            if self.stray is not None and await self.stray(ticket, scope, receive, send):
                return
            await refuse(receive, send, 401, "the slot ticket is not valid; tickets end with their session")
            return
        address = peer_address(scope)
        if self.bind_slots and network_of(address) != network_of(node.session.address):
            self._misplaced(node, node.session, address)
            await refuse(receive, send, 403, "a slot has to come from the address of its link")
            return
        pool = node.session.slots
        if pool.open >= node.reported.offer.slots + self.limits.spare_slots:
            await refuse(receive, send, 429, "more slot connections than the node offers slots")
            return
        if not await accept(receive, send):
            return
        assert isinstance(pool, SlotQueue)
        await Slot(frames_of(scope)).serve(pool)
        await LinkSocket(receive, send).close(GOING_AWAY, "the slot is not needed any more")

    def _misplaced(self, node: Node, session: Session, address: str) -> None:
        log.warning("slot from another address", node=node.node_id, link=session.address, slot=address)
        if session.session_id not in self._warned:
            self._warned.add(session.session_id)
            sentence = (
                "a slot connection with this node's ticket came from another address than its link and was refused; if "
                "that was this node, ask the coordinator's operator for `bind_slots = false`"
            )
            self._spawn(session.link.send(Notice(code="slot_address", message=sentence)))

    async def watch(self) -> None:
        """Close links that fell silent; runs for ever."""
        while True:
            await asyncio.sleep(min(1.0, self.registry.heartbeat_s / 4))
            now = monotonic()
            for node, session in self.registry.silent(now, self.lag):
                log.warning("node silent", node=node.node_id)
                self.registry.disconnect(node, session, "silent for three heartbeats")
                self._spawn(session.link.close(GOING_AWAY, "silent for three heartbeats"))

    async def close_all(self) -> None:
        """End every link; nodes come back to whoever serves next."""
        self.draining = True
        sessions = [node.session for node in self.registry.nodes.values() if node.session is not None]
        await asyncio.gather(
            *(session.link.close(GOING_AWAY, "the coordinator is shutting down") for session in sessions)
        )

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _other_version(spoken: int) -> str:
    return f"this coordinator speaks node protocol {PROTOCOL}, the node {spoken}; install a matching version"


def _refused(code: str, message: str, *, retry: bool, after_s: float | None = None) -> Refused:
    return Refused(code=code, message=message, retry=retry, retry_after_s=after_s)


Endpoint = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
