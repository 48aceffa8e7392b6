"""The two websocket endpoints that tabs dial: `/browser/v1/link` and `/browser/v1/slot`.

They speak the node protocol. What a browser makes different: it cannot set `Authorization` on a websocket, so the slot
ticket travels as the second entry of `Sec-WebSocket-Protocol` (never in the URL, which proxies log); it sends an
`Origin`, which must be our own, or any page on the web could lend its visitors' cards here; and its timers sleep while
it is hidden, so every frame counts as a sign of life and the answer to a ping is one.
"""

import asyncio
import secrets
from collections.abc import Awaitable, MutableMapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import structlog

from brain_coord.browser.tab import Tab
from brain_coord.browser.tab_memory import TabMemory
from brain_coord.browser.tabs import Tabs, banned
from brain_coord.fleet.addresses import AddressBook, network_of
from brain_coord.fleet.node import LinkSender, Session
from brain_coord.link.handshake import NotTaken, hear_hello
from brain_coord.link.orders import GOING_AWAY, POLICY
from brain_coord.link.slot import Receive, Send, Slot, SlotQueue
from brain_coord.link.socket import LinkSocket, accept, frames_of, header, peer_address, refuse
from brain_coord.store.errors import StoreUnavailable
from brain_node.contract.limits import FRAME_BYTES
from brain_node.contract.messages import (
    Heartbeat,
    Hello,
    Limits,
    MessageError,
    OfferChanged,
    OpenSlots,
    Ping,
    Pong,
    Refused,
    Welcome,
    decode,
)

log = structlog.get_logger("brain.browser")

Scope = MutableMapping[str, Any]

LINK_PATH: Final = "/browser/v1/link"
SLOT_PATH: Final = "/browser/v1/slot"
SLOT_PROTOCOL: Final = "brain.slot.v1"

MOST_SLOTS: Final = 4
MOST_TABS: Final = 2048
BODY_BYTES: Final = 32 * 1024 * 1024
PING_S: Final = 10.0
FIRST_PINGS_S: Final = (0.0, 0.1, 0.3, 1.0)


@dataclass(slots=True)
class BrowserGate:
    """Runs both endpoints over the tabs of one coordinator."""

    tabs: Tabs
    memory: TabMemory
    coordinator_key: str
    addresses: AddressBook
    origins: tuple[str, ...] = ()
    """Further origins whose pages may lend, beside our own."""
    draining: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def serves(self, path: str) -> bool:
        """Whether a websocket path is one of ours."""
        return path in (LINK_PATH, SLOT_PATH)

    async def __call__(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, from handshake to end."""
        if not self._own_origin(scope):
            await refuse(receive, send, 403, "a page of another site cannot lend tabs here")
        elif path == LINK_PATH:
            await self._link(scope, receive, send)
        else:
            await self._slot(scope, receive, send)

    def _own_origin(self, scope: Scope) -> bool:
        origin = header(scope, b"origin")
        return origin is not None and (
            urlsplit(origin).netloc == (header(scope, b"host") or "") or origin in self.origins
        )

    # --- link --------------------------------------------------------------------------------------------------------

    async def _link(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = peer_address(scope)
        if self.draining:
            await refuse(receive, send, 503, "this coordinator is shutting down; try again shortly")
            return
        if too_many := self.addresses.attempt(address, monotonic()):
            await refuse(receive, send, 429, too_many)
            return
        if len(self.tabs.online) >= MOST_TABS:
            await refuse(receive, send, 503, "this coordinator has as many tabs as it takes")
            return
        if not await accept(receive, send):
            return
        socket = LinkSocket(receive, send)
        hello = await self._hello(socket)
        if isinstance(hello, Refused):
            log.warning("tab refused", address=address, code=hello.code, reason=hello.message)
            await socket.send(hello)
            await socket.close(POLICY, hello.code)
        elif hello is not None:
            await self._admit(hello, socket, address)

    async def _admit(self, hello: Hello, socket: LinkSocket, address: str) -> None:
        known = self.tabs.get(hello.node_id) is not None
        if too_many := self.addresses.admit(address, hello.node_id, monotonic(), known=known):
            await socket.send(Refused(code="address_limit", message=too_many, retry=True, retry_after_s=300.0))
            await socket.close(POLICY, "address_limit")
            return
        try:
            tab = await self.memory.recall(hello.node_id)
        except StoreUnavailable as error:
            log.warning("tab not recalled", tab=hello.node_id, cause=str(error))
            away = "the coordinator's store is away"
            await socket.send(Refused(code="try_later", message=away, retry=True, retry_after_s=10.0))
            await socket.close(POLICY, "try_later")
            return
        if tab.banned is not None:
            await socket.send(Refused(code="banned", message=banned(tab.banned), retry=False))
            await socket.close(POLICY, "banned")
            return
        self.addresses.joined(address, hello.node_id, monotonic(), known=known)
        try:
            await self._session(tab, hello, socket, address)
        finally:
            self.addresses.left(address, hello.node_id)

    async def _hello(self, socket: LinkSocket) -> Hello | Refused | None:
        heard = await hear_hello(socket, self.coordinator_key, other_version=_other_version)
        if heard is None:
            return None
        if isinstance(heard, NotTaken):
            return heard.refused
        if not 1 <= heard.hello.offer.slots <= MOST_SLOTS:
            return Refused(code="bad_hello", message=f"a tab offers 1 to {MOST_SLOTS} slots", retry=False)
        return heard.hello

    async def _session(self, tab: Tab, hello: Hello, socket: LinkSocket, address: str) -> None:
        now = monotonic()
        older = tab.session
        session = Session(
            session_id=secrets.token_hex(8),
            link=socket,
            slots=SlotQueue(lambda n: self._spawn(socket.send(OpenSlots(n=n)))),
            ticket=secrets.token_urlsafe(24),
            address=address,
            joined_at=now,
            last_heard=now,
        )
        # The welcome leaves before anybody knows the session: a job must never overtake it.
        await socket.send(
            Welcome(
                session=session.session_id,
                heartbeat_s=self.tabs.heartbeat_s,
                ping_s=PING_S,
                slot_ticket=session.ticket,
                accepted=tuple(model.id for model in hello.offer.models),
                limits=Limits(body_bytes=BODY_BYTES, frame_bytes=FRAME_BYTES, spare_slots=0),
            )
        )
        self.tabs.connect(tab, session, hello)
        if older is not None:
            self._spawn(_supersede(older.link))
        log.info("tab joined", tab=tab.tab_id, address=address)
        reason = "the coordinator stopped"
        pinger = asyncio.create_task(self._ping(tab, session))
        try:
            reason = await self._listen(tab, session, socket)
        finally:
            pinger.cancel()
            self.tabs.disconnect(tab, session, reason)
            await socket.close(GOING_AWAY, reason)

    async def _listen(self, tab: Tab, session: Session, socket: LinkSocket) -> str:
        complaints: set[str] = set()
        while True:
            text = await socket.text()
            if text is None:
                return "its link closed"
            now = monotonic()
            session.last_heard = now
            try:
                message = decode(text)
            except MessageError as error:
                if (reason := str(error)) not in complaints:
                    complaints.add(reason)  # once per session
                    log.warning("tab message dropped", tab=tab.tab_id, reason=reason)
                continue
            if tab.session is not session:
                return "superseded by a newer session"
            if isinstance(message, Pong):
                sent = tab.rtt.sent_at(message.n)
                stalled = sent is not None and self.tabs.lag.stalled_s(sent, now) > 0
                tab.rtt.pong(message.n, now, stalled=stalled)
            elif isinstance(message, Heartbeat):
                self.tabs.drains(tab, draining=message.draining)
            elif isinstance(message, OfferChanged) and 1 <= message.offer.slots <= MOST_SLOTS:
                tab.offer, tab.report = message.offer, message.report or tab.report

    async def _ping(self, tab: Tab, session: Session) -> None:
        for delay in FIRST_PINGS_S:
            await asyncio.sleep(delay)
            await session.link.send(Ping(n=tab.rtt.ping(secrets.randbits(48), monotonic())))
        while True:
            await asyncio.sleep(PING_S)
            await session.link.send(Ping(n=tab.rtt.ping(secrets.randbits(48), monotonic())))
            await self.tabs.tell(tab, "standing", "measured and counted by the coordinator")

    # --- slot --------------------------------------------------------------------------------------------------------

    async def _slot(self, scope: Scope, receive: Receive, send: Send) -> None:
        protocols = scope.get("subprotocols") or []
        ticket = protocols[1] if len(protocols) == 2 and protocols[0] == SLOT_PROTOCOL else ""
        tab = self.tabs.by_ticket(ticket)
        if tab is None or tab.session is None:
            await refuse(receive, send, 401, "the slot ticket is not valid; tickets end with their session")
            return
        if network_of(peer_address(scope)) != network_of(tab.session.address):
            await refuse(receive, send, 403, "a slot has to come from the address of its link")
            return
        pool = tab.session.slots
        if pool.open >= tab.slots + 1:
            await refuse(receive, send, 429, "more slot connections than the tab offers slots")
            return
        if not await accept(receive, send, SLOT_PROTOCOL):
            return
        assert isinstance(pool, SlotQueue)
        await Slot(frames_of(scope)).serve(pool)
        await LinkSocket(receive, send).close(GOING_AWAY, "the slot is not needed any more")

    # --- housekeeping ------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Close links that fell silent; runs for ever."""
        while True:
            await asyncio.sleep(min(1.0, self.tabs.heartbeat_s / 4))
            for tab, session in self.tabs.silent():
                self.tabs.disconnect(tab, session, "silent for three heartbeats")
                self._spawn(session.link.close(GOING_AWAY, "silent for three heartbeats"))

    async def close_all(self) -> None:
        """End every link."""
        self.draining = True
        sessions = [tab.session for tab in self.tabs.online if tab.session is not None]
        await asyncio.gather(*(each.link.close(GOING_AWAY, "the coordinator is shutting down") for each in sessions))

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _supersede(link: LinkSender) -> None:
    """Of two tabs with one key, the one that was asked last lends; the other must not dial to win its name back."""
    await link.send(Refused(code="superseded", message="this browser lends in another tab now", retry=False))
    await link.close(POLICY, "superseded by a newer session of this tab")


def _other_version(_: int) -> str:
    return "this page is of another version; load it again"
