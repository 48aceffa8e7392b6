"""The I/O shell of one link: reads frames, answers at once, beats the heart, and notices a dead or sleeping line."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from websockets.asyncio.client import ClientConnection

from brain_node.contract.messages import Drain, Heartbeat, Notice, Offer, OfferChanged, Report, Welcome, encode
from brain_node.link.faults import Fault, LinkError
from brain_node.link.protocol import LinkProtocol, Phase

log = structlog.get_logger(__name__)

WAKE_S: Final = 5.0
"""A machine that was suspended for longer than this may have lost its connections without a word."""
WAKE_ANSWER_S: Final = 10.0


class LinkOwner(Protocol):
    """What the link asks and tells; every call returns at once."""

    def report(self) -> Report:
        """Hardware and software, from the last sample."""

    def offer(self) -> Offer:
        """What this node would do now."""

    def heartbeat(self) -> Heartbeat:
        """Telemetry and engine states, from the last sample."""

    def welcomed(self, welcome: Welcome) -> None:
        """The session began."""

    def notice(self, notice: Notice) -> None:
        """The coordinator has something to say."""

    def drain(self, drain: Drain) -> None:
        """The coordinator asks for no new jobs and an end within the deadline."""


class SessionOwner(LinkOwner, Protocol):
    """The same for one session, whose owner also keeps its slot connections."""

    def open_slots(self, n: int) -> None:
        """The coordinator asks for more slot connections."""


def suspended_s() -> float:
    """Seconds this machine has spent suspended since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class LinkSession:
    """One linked session on one open websocket."""

    def __init__(
        self,
        socket: ClientConnection,
        protocol: LinkProtocol,
        owner: SessionOwner,
        suspended: Callable[[], float] = suspended_s,
    ) -> None:
        self._socket = socket
        self._protocol = protocol
        self._owner = owner
        self._suspended = suspended
        self._wake = asyncio.Event()
        self._offer_changed = False
        self._sent_offer: Offer | None = None

    def offer_changed(self) -> None:
        """Something changed: send the offer if it did, and a heartbeat in any case, at the next turn of the loop."""
        self._offer_changed = True
        self._wake.set()

    async def run(self) -> None:
        """Talk until the link ends, which is always by an exception.

        Raises:
            LinkError, MessageError, ConnectionClosed, OSError: as `fault_of` explains them.
        """
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        # Nothing here may wait for anything but the socket, or pongs would be late.
        while True:
            step = self._protocol.received(await self._socket.recv(), time.monotonic())
            for frame in step.send:
                await self._socket.send(frame)
            for event in step.events:
                if isinstance(event, Welcome):
                    self._owner.welcomed(event)
                    self._wake.set()
                elif isinstance(event, Notice):
                    self._owner.notice(event)
                elif isinstance(event, Drain):
                    self._owner.drain(event)
                else:
                    self._owner.open_slots(event.n)

    async def _beat(self) -> None:
        beat_at = time.monotonic()
        suspended = self._suspended()
        while True:
            now = time.monotonic()
            is_open = self._protocol.phase is Phase.OPEN
            wake_at = min(self._protocol.check_at, beat_at) if is_open else self._protocol.check_at
            try:
                async with asyncio.timeout(max(0.0, wake_at - now)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = time.monotonic()
            if self._suspended() - suspended > WAKE_S:
                suspended = self._suspended()
                await self._probe()
            if now >= self._protocol.check_at:
                self._protocol.check(now)
            if self._protocol.phase is not Phase.OPEN:
                continue
            changed, self._offer_changed = self._offer_changed, False
            offer = self._owner.offer() if changed else None
            if offer is not None and offer != self._sent_offer:
                await self._socket.send(encode(OfferChanged(offer=offer, report=self._owner.report())))
                self._sent_offer = offer
            if changed or now >= beat_at:
                await self._socket.send(encode(self._owner.heartbeat()))
                beat_at = now + self._protocol.heartbeat_s

    async def _probe(self) -> None:
        """Ask whether the line outlived a suspended machine, instead of waiting three periods to find out."""
        log.info("woke_up", note="checking the link")
        try:
            async with asyncio.timeout(WAKE_ANSWER_S):
                await (await self._socket.ping())
        except TimeoutError:
            raise LinkError(Fault("slept", "the link did not outlive this machine's sleep")) from None
