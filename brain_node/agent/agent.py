"""The running agent: one object that owns the link, the engines and the way to a clean end."""

import asyncio
import signal
import time
from dataclasses import dataclass
from typing import Final

import structlog

from brain_node.agent.desk import Desk
from brain_node.agent.hardware import Hardware
from brain_node.agent.source import EngineSource
from brain_node.agent.state_file import State, load_state, save_state
from brain_node.agent.why import Notices
from brain_node.contract.identity import Identity
from brain_node.contract.limits import FRAME_BYTES, MAX_MODELS
from brain_node.contract.messages import Drain, Heartbeat, Notice, Offer, Report, Welcome
from brain_node.exit_codes import OK
from brain_node.link.client import Link, LinkStatus
from brain_node.link.dial import Dialer
from brain_node.link.faults import Fault
from brain_node.relay.relay import Relay
from brain_node.settings import Settings

log = structlog.get_logger(__name__)

SAMPLE_S: Final = 5.0
"""Period of looking at the machine."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an agent is put together from."""

    settings: Settings
    identity: Identity
    dialer: Dialer
    source: EngineSource
    hardware: Hardware


class Agent:
    """Lends this machine to one coordinator until told to stop."""

    def __init__(self, parts: Parts) -> None:
        self.settings = parts.settings
        self.identity = parts.identity
        self.dialer = parts.dialer
        self.source = parts.source
        self.hardware = parts.hardware
        self.notices = Notices()
        self.desk = Desk(parts.source, parts.settings.slots)
        self.relay = Relay(self.desk)
        self.link = Link(parts.dialer, parts.identity, parts.settings.token, self, self.relay)
        self.started_at = time.time()
        """A label only; how long it runs is measured from `started`."""
        self.started = time.monotonic()
        self.fault: Fault | None = None
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        if load_state(parts.settings.data_dir).draining:
            self.desk.closed_by.add("operator")

    # --- what the link asks and tells ---------------------------------------------------------------------------------

    def report(self) -> Report:
        """Hardware and software as claimed."""
        software = {"engine": self.source.kind, "engine_version": self.source.version}
        return self.hardware.report().model_copy(update=software)

    def offer(self) -> Offer:
        """What this node would do now."""
        return Offer(
            models=tuple(self.source.offers())[:MAX_MODELS],
            slots=self.desk.slots,
            region=self.settings.region,
            ask_usd_per_1m=self.settings.ask_usd_per_1m,
        )

    def heartbeat(self) -> Heartbeat:
        """Alive, with the last telemetry."""
        return Heartbeat(
            telemetry=self.hardware.telemetry(),
            engines=tuple(self.source.claims())[:MAX_MODELS],
            active=self.desk.active,
            draining=self.desk.draining,
        )

    def welcomed(self, welcome: Welcome) -> None:
        """A session began; a drain that the last one asked for ended with it."""
        self.desk.closed_by.discard("coordinator")
        self.relay.frame_bytes = min(FRAME_BYTES, welcome.limits.frame_bytes)

    def notice(self, notice: Notice) -> None:
        """Keep what the coordinator says."""
        self.notices.add(notice, time.monotonic(), time.time())
        log.info("notice", code=notice.code, message=notice.message)

    def drain(self, drain: Drain) -> None:
        """Take no new jobs in this session; the coordinator itself cancels what outlasts its deadline."""
        log.info("draining", asked_by="coordinator", deadline_s=drain.deadline_s)
        self.desk.closed_by.add("coordinator")
        self.link.offer_changed()

    # --- what the operator asks ---------------------------------------------------------------------------------------

    def set_draining(self, draining: bool) -> bool:
        """Take no new jobs, or take them again; tells whether that is remembered over restarts."""
        (self.desk.closed_by.add if draining else self.desk.closed_by.discard)("operator")
        log.info("draining" if draining else "resumed", asked_by="operator")
        self.link.offer_changed()
        try:
            save_state(self.settings.data_dir, State(draining=draining))
        except OSError as error:  # a full disk must not keep anybody from draining
            log.warning("state_not_saved", reason=error.strerror or str(error))
            return False
        return True

    def stop(self, reason: str) -> None:
        """Begin a clean stop; a second call ends it at once."""
        if self._stop.is_set():
            log.warning("stopping_now", asked_by=reason)
            self._stop_now.set()
        else:
            log.info("stopping", asked_by=reason, active=self.desk.active)
            self._stop.set()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Work until stopped or refused for good; the exit code."""
        loop = asyncio.get_running_loop()
        # A closed terminal stops the agent as well, unless it was started to outlive it (nohup ignores SIGHUP).
        hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        signals = (signal.SIGTERM, signal.SIGINT, *hang_up)
        for number in signals:
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        sampling = asyncio.create_task(self._sample())
        linking: asyncio.Task[Fault] | None = None
        try:
            await self.hardware.sample()
            await self.source.start(self.link.offer_changed)
            linking = asyncio.create_task(self.link.run())
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait((linking, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if linking.done():
                self.fault = linking.result()
            else:
                await self._drain()
        finally:
            tasks = [task for task in (sampling, linking) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # however they end: the engines still have to
            await self.source.stop()
            self.relay.close()
            self.hardware.close()
            for number in signals:
                loop.remove_signal_handler(number)
        code = OK if self.fault is None or self.fault.exit_code is None else self.fault.exit_code
        log.info("stopped", exit_code=code)
        return code

    async def _drain(self) -> None:
        """Say so, let streams finish within the limit, or end at once when told twice."""
        self.desk.closed_by.add("stopping")
        self.link.offer_changed()
        idle, now = asyncio.create_task(self.desk.idle()), asyncio.create_task(self._stop_now.wait())
        await asyncio.wait((idle, now), timeout=self.settings.drain_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if self.desk.active:
            log.warning("streams_cut", active=self.desk.active)
        for task in (idle, now):
            task.cancel()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            await self.hardware.sample()

    @property
    def hurried(self) -> bool:
        """Whether it was told twice to stop."""
        return self._stop_now.is_set()

    @property
    def link_status(self) -> LinkStatus:
        """Where the link stands."""
        return self.link.status
