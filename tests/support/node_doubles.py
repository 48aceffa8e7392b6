"""Stand-ins for what surrounds the link and the relay: an owner that remembers, jobs run by a function."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from brain_node.contract.identity import Identity
from brain_node.contract.messages import (
    Drain,
    Heartbeat,
    Job,
    ModelOffer,
    Notice,
    Offer,
    Report,
    Welcome,
)
from brain_node.link.backoff import BackoffPolicy
from brain_node.link.client import Link, LinkStatus
from brain_node.link.dial import Dialer
from brain_node.link.slot import JobRunner, Line
from brain_node.link.url import parse_coordinator

QUICK = BackoffPolicy(start_s=0.0, window_s=0.05, cap_s=0.2, slow_s=0.1, stable_after_s=5.0)


class Owner:
    """A node that offers `brain/mock` and remembers what it was told."""

    def __init__(self, slots: int = 4) -> None:
        self.slots = slots
        self.region: str | None = None
        self.told: list[Welcome | Notice | Drain] = []

    def report(self) -> Report:
        return Report(os="Linux")

    def offer(self) -> Offer:
        return Offer(models=(ModelOffer(id="brain/mock", loaded=True),), slots=self.slots, region=self.region)

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(active=0)

    def welcomed(self, welcome: Welcome) -> None:
        self.told.append(welcome)

    def notice(self, notice: Notice) -> None:
        self.told.append(notice)

    def drain(self, drain: Drain) -> None:
        self.told.append(drain)


class Runner:
    """Runs jobs with a function; counts what started and what was cancelled."""

    def __init__(self, act: Callable[[Job, bytes, Line], Awaitable[None]] | None = None) -> None:
        self.act = act
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.bodies: list[bytes] = []
        self.running: list[Running] = []

    def start(self, job: Job, body: tuple[bytes, ...], line: Line) -> "Running":
        self.started.append(job.id)
        self.bodies.append(b"".join(body))
        line.accepted()
        self.running.append(Running(self, job, asyncio.ensure_future(self._run(job, self.bodies[-1], line)), line))
        return self.running[-1]

    async def _run(self, job: Job, body: bytes, line: Line) -> None:
        if self.act is not None:
            await self.act(job, body, line)
        line.end(None)


@dataclass
class Running:
    """One job of a `Runner`."""

    runner: Runner
    job: Job
    task: "asyncio.Task[None]"
    line: Line
    pauses: int = 0

    def cancel(self) -> None:
        self.runner.cancelled.append(self.job.id)
        self.task.cancel()
        self.line.end("cancelled")

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1


class Linked:
    """A link in a task of its own.

    Use as `async with Linked(url) as node`.
    """

    def __init__(
        self,
        url: str,
        owner: Owner | None = None,
        runner: JobRunner | None = None,
        *,
        token: str | None = None,
        ca_file: Path | None = None,
        environ: dict[str, str] | None = None,
        identity: Identity | None = None,
        policy: BackoffPolicy = QUICK,
    ) -> None:
        self.owner = owner or Owner()
        self.runner = runner or Runner()
        self.history: list[LinkStatus] = []
        self.link = Link(
            Dialer(parse_coordinator(url), ca_file, environ or {}),
            identity or Identity.generate(),
            token,
            self.owner,
            self.runner,
            self.history.append,
            policy,
            random.Random(7).random,
        )
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "Linked":
        self.task = asyncio.create_task(self.link.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def until(self, state: str) -> LinkStatus:
        """Wait until the link is, or has been, in a state; the status it had then."""
        async with asyncio.timeout(20):
            while True:
                for status in self.history:
                    if status.state == state:
                        return status
                await asyncio.sleep(0.005)
