"""Products for clients: cut into units, spread over tabs by the node router, each unit checked, given on when a tab fails."""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Literal

import numpy as np
import structlog

from brain_coord.browser.blocks import Block, cut
from brain_coord.browser.tab import MATMUL, Tab
from brain_coord.browser.tabs import Tabs
from brain_coord.browser.u32 import U32
from brain_coord.browser.unit import Product, UnitRunner
from brain_coord.browser.work import WorkFault
from brain_coord.routing.inputs import ModelNeed, NodeRequest
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.node_router import decide_node
from brain_coord.routing.vocabulary import Liveness

log = structlog.get_logger("brain.browser")

Status = Literal["running", "completed", "failed", "cancelled"]

NEED: Final = ModelNeed(MATMUL)
NOBODY_S: Final = 20.0
"""A job fails when for so long no tab was there that could take any of its units."""

UNIT_S: Final = (20.0, 300.0)
SLOWER: Final = 10.0
"""A unit may take so many times what the tab's challenge suggests, within the bounds of `UNIT_S`."""

FAULTS: Final = 6
"""So many failures of one unit end the job: then it is rather the unit."""

KEPT_S: Final = 600.0
KEPT_JOBS: Final = 64
KEPT_BYTES: Final = 512 * 1024 * 1024


@dataclass(slots=True)
class Unit:
    """One block, and what happened to it."""

    number: int
    block: Block
    wanted: int
    answers: dict[str, bytes] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """Tabs that have it, had it, or failed it."""
    told: list[dict[str, Any]] = field(default_factory=list)
    faults: int = 0

    @property
    def done(self) -> bool:
        """Whether it has as many checked answers as were wanted."""
        return len(self.answers) >= self.wanted


class ComputeJob:
    """One product that a client asked for."""

    def __init__(self, product: Product, tabs: int, *, key_id: str | None, redundancy: int) -> None:
        self.job_id = "c-" + secrets.token_hex(12)
        self.key_id = key_id
        self.product = product
        self.redundancy = redundancy
        blocks = cut(product.rows, product.inner, product.columns, tabs)
        self.units = [Unit(number, block, redundancy) for number, block in enumerate(blocks)]
        self.status: Status = "running"
        """What is told; it leaves `running` only when the receipt is durable."""
        self.outcome: Status = "running"
        self.reason: str | None = None
        self.result: U32 = np.empty((product.rows, product.columns), dtype=np.uint32)
        self.sha256: str | None = None
        self.receipt_id: str | None = None
        self.began = monotonic()
        self.ended: float | None = None
        self.attempts: list[dict[str, Any]] = []
        self.version = 0
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Wake everybody who watches."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, version: int) -> int:
        """The next version of the job's story."""
        while self.version == version and self.status == "running":
            await self._changed.wait()
        return self.version

    @property
    def done_units(self) -> int:
        """Units with all the answers they want."""
        return sum(unit.done for unit in self.units)

    def view(self) -> dict[str, Any]:
        """As its client may see it."""
        product = self.product
        return {
            "id": self.job_id,
            "object": "compute.job",
            "kind": MATMUL,
            "status": self.status,
            "reason": self.reason,
            "rows": product.rows,
            "inner": product.inner,
            "columns": product.columns,
            "units": len(self.units),
            "units_done": self.done_units,
            "tabs": sorted({tab for unit in self.units for tab in unit.answers}),
            "faults": [attempt for attempt in self.attempts if attempt["cause"] is not None],
            "verified": self.status == "completed",
            "result_sha256": self.sha256,
            "receipt": self.receipt_id,
            "elapsed_ms": round(((self.ended or monotonic()) - self.began) * 1000, 3),
        }


@dataclass(slots=True)
class Dispatcher:
    """Runs jobs over the tabs."""

    tabs: Tabs
    runner: UnitRunner
    _capacity: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.tabs.on_capacity.append(self._more)

    def _more(self) -> None:
        self._capacity.set()
        self._capacity = asyncio.Event()

    def decide(self, passed: set[str] | frozenset[str] = frozenset()) -> NodeDecision:
        """Which tab would take a unit now, without those that had it already."""
        states = [state for state in self.tabs.states() if state.node_id not in passed]
        return decide_node(NodeRequest(), NEED, states)

    async def run(self, job: ComputeJob) -> None:
        """Run a job to its end, whatever that is. Raises only when it is cancelled."""
        pending = [unit for unit in job.units for _ in range(job.redundancy)]
        running: dict[asyncio.Task[None], Unit] = {}
        nobody_since: float | None = None
        try:
            while pending or running:
                self._give_out(job, pending, running)
                if running:
                    nobody_since = None
                elif nobody_since is None:
                    nobody_since = monotonic()
                elif monotonic() - nobody_since > NOBODY_S:
                    raise WorkFault("no_capacity", self._shortage(pending))
                capacity = asyncio.ensure_future(self._capacity.wait())
                await asyncio.wait({*running, capacity}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                capacity.cancel()
                for task in [task for task in running if task.done()]:
                    unit = running.pop(task)
                    if task.exception() is not None:
                        self._give_on(unit, pending, task.exception())
            await asyncio.to_thread(_assemble, job)
            job.outcome = "completed"
        except WorkFault as fault:
            job.outcome, job.reason = "failed", f"{fault.cause}: {fault}"
        except asyncio.CancelledError:
            job.outcome, job.reason = "cancelled", job.reason or "cancelled: the client gave it up"
            raise
        except Exception:
            log.exception("compute job failed", job=job.job_id)
            job.outcome, job.reason = "failed", "internal: a fault of the coordinator"
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            job.ended = monotonic()

    def _give_out(self, job: ComputeJob, pending: list[Unit], running: dict[asyncio.Task[None], Unit]) -> None:
        for unit in tuple(pending):
            decision = self.decide(unit.asked)
            if decision.selected is None:
                if not unit.asked:
                    return
                continue
            tab = self.tabs.get(decision.selected)
            assert tab is not None
            pending.remove(unit)
            unit.asked.add(tab.tab_id)
            self.tabs.reserve(tab)
            running[asyncio.create_task(self._unit(job, unit, tab))] = unit

    def _give_on(self, unit: Unit, pending: list[Unit], error: BaseException | None) -> None:
        if not isinstance(error, WorkFault):
            assert error is not None
            raise error
        unit.faults += 1
        if unit.faults >= FAULTS:
            raise WorkFault(error.cause, f"unit {unit.number} failed {unit.faults} times, at last: {error}")
        if len([tab for tab in self.tabs.online if tab.tab_id not in unit.asked]) == 0:
            # Nobody is left who did not have it: those that merely lost it may try again, liars are set aside anyway.
            unit.asked = set(unit.answers)
        pending.insert(0, unit)

    def shortage(self) -> str:
        """Why no tab can take a unit."""
        decision = self.decide()
        return decision.reason if decision.considered else "no tab online"

    def _shortage(self, pending: list[Unit]) -> str:
        if any(unit.answers for unit in pending) and self.decide().selected is not None:
            return f"redundancy {pending[0].wanted} needs as many tabs"
        return self.shortage()

    async def _unit(self, job: ComputeJob, unit: Unit, tab: Tab) -> None:
        began, known = monotonic(), tab.ops_s
        operations = unit.block.operations(job.product.inner)
        least, most = UNIT_S
        timeout_s = min(most, max(least, SLOWER * tab.slots * operations / known if known else most))
        attempt: dict[str, Any] = {
            "unit": unit.number,
            "tab": tab.tab_id,
            "started_ms": round((began - job.began) * 1000, 3),
            "cause": "cancelled",
        }
        job.attempts.append(attempt)
        try:
            body, elapsed_s = await self.runner.run(
                tab, job.product, unit.block, timeout_s=timeout_s, known_ops_s=known
            )
            unit.answers[tab.tab_id] = body
            attempt["cause"] = None
            tab.verified.units += 1
            tab.verified.operations += operations
            self.tabs.outcome(tab, "completed")
            await self.tabs.tell(tab, "verified", f"a unit was checked and counted ({elapsed_s:.2f} s)")
        except WorkFault as fault:
            attempt["cause"] = fault.cause
            log.info("unit failed", job=job.job_id, unit=unit.number, tab=tab.tab_id, cause=fault.cause)
            if fault.cause in ("wrong_result", "too_fast"):
                await self.tabs.caught(tab, str(fault))
            elif fault.blame:
                self.tabs.outcome(tab, "timed_out" if fault.cause == "timeout" else "failed", detail=fault.cause)
            raise
        finally:
            attempt["ended_ms"] = round((monotonic() - job.began) * 1000, 3)
            job.changed()


def _assemble(job: ComputeJob) -> None:
    for unit in job.units:
        block = unit.block
        first, *others = unit.answers.values()
        if any(other != first for other in others):
            raise WorkFault("disagreement", f"checked answers for unit {unit.number} differ")
        part = np.frombuffer(first, dtype="<u4").reshape(block.rows, block.columns)
        job.result[block.row : block.row + block.rows, block.column : block.column + block.columns] = part
        unit.answers = dict.fromkeys(unit.answers, b"")
    job.sha256 = hashlib.sha256(job.result.astype("<u4").tobytes()).hexdigest()


@dataclass(slots=True)
class JobBook:
    """Jobs that run, and finished ones for a while."""

    dispatcher: Dispatcher
    _jobs: "OrderedDict[str, ComputeJob]" = field(default_factory=OrderedDict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def find(self, job_id: str, key_id: str | None) -> ComputeJob | None:
        """A job of this key."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.key_id == key_id else None

    @property
    def running(self) -> int:
        """Jobs that are not over."""
        return len(self._tasks)

    @property
    def full(self) -> bool:
        """Whether as many jobs run as may, or such large ones."""
        running = [self._jobs[job_id].result.nbytes for job_id in self._tasks]
        return len(running) >= KEPT_JOBS or sum(running) >= KEPT_BYTES

    def start(self, job: ComputeJob, ended: Callable[[ComputeJob], Any]) -> asyncio.Task[None]:
        """Run a job beside whatever asked for it; `ended` is awaited before anybody hears that it is over."""
        self._prune()
        self._jobs[job.job_id] = job

        async def run() -> None:
            try:
                await self.dispatcher.run(job)
            finally:
                try:
                    await ended(job)
                finally:
                    job.status = job.outcome
                    job.changed()

        task = asyncio.create_task(run())
        self._tasks[job.job_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.job_id, None))
        return task

    def cancel(self, job: ComputeJob) -> bool:
        """Give a job up; `False` when it was over already, or given up: its receipt is being written then."""
        task = self._tasks.get(job.job_id)
        return task is not None and job.outcome == "running" and task.cancel()

    async def drain(self, limit_s: float) -> None:
        """Let what runs end within the limit, and give the rest up."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=limit_s)
        for job in [self._jobs[job_id] for job_id in self._tasks]:
            if job.outcome == "running":
                job.reason = "draining: the coordinator is shutting down"
                self.cancel(job)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _prune(self) -> None:
        now = monotonic()
        kept_bytes = sum(job.result.nbytes for job in self._jobs.values())
        for job in tuple(self._jobs.values()):
            over = len(self._jobs) >= KEPT_JOBS or kept_bytes > KEPT_BYTES
            if job.ended is not None and job.job_id not in self._tasks and (over or now - job.ended > KEPT_S):
                kept_bytes -= job.result.nbytes
                del self._jobs[job.job_id]


def able(tabs: Iterable[Tab], now: float) -> int:
    """How many tabs could share work now."""
    return sum(tab.ops_s is not None and tab.liveness(now) in (Liveness.ONLINE, Liveness.BUSY) for tab in tabs)
