"""The link for as long as the agent lives: connect, hold a session and its slots, back off, again."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog
from websockets.asyncio.client import ClientConnection

from brain_node.contract.identity import Identity
from brain_node.contract.messages import Drain, Heartbeat, Notice, Offer, Report, Welcome
from brain_node.link.backoff import Backoff, BackoffPolicy
from brain_node.link.dial import Dialer
from brain_node.link.faults import Fault, fault_of
from brain_node.link.protocol import LinkProtocol
from brain_node.link.session import LinkOwner, LinkSession
from brain_node.link.slot import JobRunner
from brain_node.link.slots import Slots, slot_opener

log = structlog.get_logger(__name__)

LinkState = Literal["starting", "connecting", "online", "waiting", "refused", "stopped"]


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """Where the link stands, for people; times in monotonic seconds."""

    state: LinkState = "starting"
    since: float = 0.0
    session: str | None = None
    accepted: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """Models the coordinator does not route to this node, with its reasons."""
    fault: Fault | None = None
    """Why the link is down, or why it last was."""
    next_attempt_at: float | None = None
    attempts: int = 0
    sessions: int = 0


class Link:
    """Keeps one node linked to one coordinator.

    Args:
        dialer: opens websockets to it.
        identity: the node's key pair.
        token: a join token, if one was given.
        owner: what the link asks and tells.
        runner: runs the jobs that arrive on slots.
        changed: called after every change of `status`.
    """

    def __init__(
        self,
        dialer: Dialer,
        identity: Identity,
        token: str | None,
        owner: LinkOwner,
        runner: JobRunner,
        changed: Callable[[LinkStatus], None] = lambda _: None,
        policy: BackoffPolicy | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._dialer = dialer
        self._identity = identity
        self._token = token
        self._owner = owner
        self._runner = runner
        self._changed = changed
        self._backoff = Backoff(policy or BackoffPolicy(), draw)
        self._socket: ClientConnection | None = None
        self._session: LinkSession | None = None
        self._slots: Slots | None = None
        self._slots_task: asyncio.Task[None] | None = None
        self.status = LinkStatus()

    @property
    def slots(self) -> Slots | None:
        """The slot connections of the running session."""
        return self._slots

    def offer_changed(self) -> None:
        """Tell the coordinator what is offered now; without a session the next hello does."""
        if self._slots is not None:
            self._slots.set_slots(self._owner.offer().slots)
        if self._session is not None:
            self._session.offer_changed()

    async def run(self) -> Fault:
        """Stay linked until a fault that trying again cannot mend, which is returned; or until cancelled."""
        self._set(state="connecting")
        await asyncio.sleep(self._backoff.first_delay_s())
        try:
            while True:
                fault = await self._attempt()
                now = time.monotonic()
                if fault.exit_code is not None:
                    log.error("link_refused", code=fault.code, reason=fault.message, next_step=fault.next_step)
                    self._set(state="refused", session=None, fault=fault, next_attempt_at=None)
                    return fault
                if fault.asked:
                    delay_s = self._backoff.asked_s(now)
                    log.info("link_again", reason=fault.message, retry_in_s=round(delay_s, 1))
                else:
                    delay_s = self._backoff.down(now, retry_after_s=fault.retry_after_s, slow=fault.slow)
                    log.warning(
                        "link_down",
                        code=fault.code,
                        reason=fault.message,
                        next_step=fault.next_step or None,
                        retry_in_s=round(delay_s, 1),
                    )
                self._set(state="waiting", session=None, fault=fault, next_attempt_at=now + delay_s)
                await asyncio.sleep(delay_s)
                self._set(state="connecting", next_attempt_at=None)
        finally:
            if self.status.state != "refused":
                self._set(state="stopped", session=None, next_attempt_at=None)

    async def _attempt(self) -> Fault:
        """One connection from dialling to its end."""
        self._set(attempts=self.status.attempts + 1)
        try:
            socket = await self._dialer.link()
            protocol = LinkProtocol(
                self._identity, self._token, lambda: (self.report(), self.offer()), time.monotonic()
            )
            self._socket = socket
            self._session = LinkSession(socket, protocol, self)
            try:
                await self._session.run()
            finally:
                self._session = None
                await self._close_slots()
                await socket.close(1001, "the node is leaving")
        except Exception as error:
            fault = fault_of(error, time.time())
            if fault.code == "unexpected":
                log.exception("link_unexpected")
            return fault
        raise AssertionError("a session only ends by an exception")

    # --- what a session asks and tells: its slots are this link's affair, everything else the owner's -------------------

    def report(self) -> Report:
        """Hardware and software."""
        return self._owner.report()

    def offer(self) -> Offer:
        """What this node would do now."""
        return self._owner.offer()

    def heartbeat(self) -> Heartbeat:
        """Telemetry and engine states."""
        return self._owner.heartbeat()

    def notice(self, notice: Notice) -> None:
        """The coordinator has something to say."""
        self._owner.notice(notice)

    def drain(self, drain: Drain) -> None:
        """The coordinator wants no new jobs taken."""
        self._owner.drain(drain)

    def welcomed(self, welcome: Welcome) -> None:
        """The session began: open its slots."""
        now = time.monotonic()
        self._backoff.up(now)
        self._set(
            state="online",
            since=now,
            session=welcome.session,
            accepted=welcome.accepted,
            refused=tuple((r.model, r.reason) for r in welcome.refused),
            sessions=self.status.sessions + 1,
        )
        log.info("linked", coordinator=self._dialer.url.base, session=welcome.session, models=list(welcome.accepted))
        for refusal in welcome.refused:
            log.warning("model_not_accepted", model=refusal.model, reason=refusal.reason)
        self._slots = Slots(
            slot_opener(self._dialer, welcome),
            self._runner,
            self._owner.offer().slots,
            welcome.limits.spare_slots,
            welcome.limits.body_bytes,
        )
        self._slots_task = asyncio.create_task(self._slots.run())
        self._slots_task.add_done_callback(self._slots_over)
        self._owner.welcomed(welcome)

    def open_slots(self, n: int) -> None:
        """The coordinator wants more slot connections."""
        if self._slots is not None:
            self._slots.ask(n)

    def _slots_over(self, task: "asyncio.Task[None]") -> None:
        """A session without slots would look healthy and take no job: end it, so that the next one starts afresh."""
        if not task.cancelled() and (error := task.exception()) is not None and self._socket is not None:
            log.error("slots_failed", reason=repr(error))
            self._socket.transport.abort()

    async def _close_slots(self) -> None:
        task, self._slots, self._slots_task = self._slots_task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _set(self, **changes: Any) -> None:
        if "state" in changes and changes["state"] != self.status.state:
            changes.setdefault("since", time.monotonic())
        self.status = replace(self.status, **changes)
        self._changed(self.status)
