"""Runs one engine for as long as it is wanted: the shell that feeds its state machine and does what that says.

One task owns the machine and the process. Everybody else posts to its mailbox, reads views, or notes signs of life.
"""

import asyncio
import errno
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import structlog

from brain_node.engine.argv import HOST
from brain_node.engine.causes import Cause, CauseKind, classify
from brain_node.engine.events import (
    Action,
    Canary,
    CanaryBack,
    CancelFetch,
    CheckRelease,
    Ended,
    EndGroup,
    Event,
    Exited,
    Fetch,
    Fetched,
    FetchFailed,
    Launch,
    LaunchFailed,
    Look,
    Looked,
    Released,
)
from brain_node.engine.group import Leftovers, kill_all
from brain_node.engine.logs import EngineLog, log_path
from brain_node.engine.ports import choose_port
from brain_node.engine.probe import CanaryResult, EngineProbe, ProbeResult
from brain_node.engine.process import EngineProcess
from brain_node.engine.run_record import RunRecord
from brain_node.engine.spec import EngineSpec
from brain_node.engine.states import EngineMachine, State
from brain_node.engine.timing import Timing
from brain_node.engine.view import DownloadProgress, EngineView
from brain_node.engine.vitality import Vitality
from brain_node.link.backoff import Backoff

log = structlog.get_logger(__name__)

FetchWeights = Callable[[Callable[[DownloadProgress], None]], Awaitable[Path]]
"""Fetches the weights, telling how far it is; gives their folder, or raises `FetchError`."""

ReleaseCheck = Callable[[], Awaitable[str | None]]
"""Says what keeps the engine from starting again, such as memory that did not come back, or `None`."""

_LOADING_TERM_GRACE_S: Final = 1.0


class FetchError(Exception):
    """Weights could not be fetched."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


@dataclass(slots=True)
class Surroundings:
    """What the engines of one agent share."""

    data_dir: Path
    timing: Timing = field(default_factory=Timing)
    ports: set[int] = field(default_factory=set)
    """Ports promised to engines of this agent."""
    base_env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random

    @property
    def run_dir(self) -> Path:
        """Where running engines are on record."""
        return self.data_dir / "run"


class EngineJob:
    """One job on one engine process; late words about a process that is gone change nothing."""

    __slots__ = ("_changed", "_clock", "_over", "_vitality")

    def __init__(self, vitality: Vitality, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self._vitality = vitality
        self._clock = clock
        self._changed = changed
        self._over = False
        vitality.job_started(clock())

    def progress(self) -> None:
        """Bytes of the answer came."""
        self._vitality.job_progress(self._clock())

    def finished(self, *, ok: bool) -> None:
        """The job is over; calling it again changes nothing.

        Args:
            ok: the engine answered as it should. A job that failed, or was given up without output, is not ok: an
                idle engine is then asked for a token at once.
        """
        if not self._over:
            self._over = True
            self._vitality.job_finished(self._clock(), ok=ok)
            self._changed()


class EngineSupervisor:
    """One engine, launched and kept alive.

    Args:
        spec: what it shall be.
        surroundings: what this agent's engines share.
        fetch: how its weights are fetched before the first start; `None` when they are on the disk.
        release_check: asked after each end, before the next start.
    """

    def __init__(
        self,
        spec: EngineSpec,
        surroundings: Surroundings,
        fetch: FetchWeights | None = None,
        release_check: ReleaseCheck | None = None,
    ) -> None:
        self._around = surroundings
        self._clock = surroundings.clock
        self._machine = EngineMachine(
            spec=spec,
            timing=surroundings.timing,
            start_backoff=Backoff(surroundings.timing.start_backoff, surroundings.draw),
            crash_backoff=Backoff(surroundings.timing.crash_backoff, surroundings.draw),
            needs_fetch=fetch is not None,
            since=surroundings.clock(),
        )
        self._fetch_weights = fetch
        self._release_check = release_check
        self._log = EngineLog(log_path(surroundings.data_dir, spec.slug))
        self._mail: asyncio.Queue[Event | _Ask] = asyncio.Queue()
        self._owner: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._fetching: asyncio.Task[None] | None = None
        self._process: EngineProcess | None = None
        self._probe: EngineProbe | None = None
        self._api_key = ""
        self._tried_ports: set[int] = set()
        self._progress: DownloadProgress | None = None
        self._listeners: list[Callable[[EngineView], None]] = []
        self._shown: tuple[Any, ...] = ()
        self._changed = asyncio.Event()
        self._unended: list[RunRecord] = []
        self.leftovers: list[Leftovers] = []
        """What could not be removed after an end; empty when all went well."""

    # --- what others call -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin, or begin anew after it failed; returns at once."""
        if self._owner is None or self._owner.done():
            self._mail = asyncio.Queue()  # words to an earlier owner are void
            self._owner = asyncio.create_task(self._own(), name=f"engine {self._machine.spec.slug}")
        self._mail.put_nowait("start")

    async def stop(self, drain_s: float = 0.0, abort: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop for good; may be called at any time, also again with less patience, and during a start.

        Args:
            drain_s: how long running jobs may go on; new ones are refused at once.
            abort: ends the jobs that are left then. An engine that gets SIGTERM with streams open can hang for good.
        """
        if self._owner is None or self._owner.done():
            return
        loading = self._machine.state is State.STARTING
        self._mail.put_nowait("stop")
        await self._wait_for(lambda: self._machine.state in (State.STOPPING, State.STOPPED))
        if not await self._wait_for(self._idle, drain_s) and abort is not None:
            await abort()
            await self._wait_for(self._idle, 1.0)
        self._mail.put_nowait("end loading" if loading else "end")
        await asyncio.wait([self._owner])

    def job(self) -> EngineJob | None:
        """Give the engine a job: note its signs of life there. `None` when it takes none now."""
        vitality = self._machine.vitality
        if self._machine.state is not State.READY or vitality is None:
            return None
        return EngineJob(vitality, self._clock, self._changed.set)

    def subscribe(self, callback: Callable[[EngineView], None]) -> Callable[[], None]:
        """Call back on every change of the view (elapsed time aside); call what is returned to end that."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback) if callback in self._listeners else None

    def view(self) -> EngineView:
        """The engine now."""
        machine, now = self._machine, self._clock()
        process = self._process
        retry_at = machine.next_start_at
        vitality = machine.vitality
        return EngineView(
            model_id=machine.spec.model_id,
            replica=machine.spec.replica,
            state=machine.state,
            since=machine.since,
            elapsed_s=max(0.0, now - machine.since),
            pid=process.pid if process else None,
            port=process.port if process else None,
            base_url=f"http://{HOST}:{process.port}" if process else None,
            context=machine.spec.context,
            starts=machine.starts,
            start_s=machine.start_s,
            active=vitality.active if vitality else 0,
            cause=machine.cause,
            note=machine.decision.note if machine.decision else "",
            next_retry_s=max(0.0, retry_at - now) if retry_at is not None else None,
            progress=self._progress if machine.state is State.DOWNLOADING else None,
            last_line=self._log.last_line if machine.state is State.STARTING else "",
            log_path=str(self._log.path),
        )

    @property
    def api_key(self) -> str:
        """What its `/v1` routes ask for; a new one each start."""
        return self._api_key

    @property
    def spec(self) -> EngineSpec:
        """What it is started as now, changes by retries included."""
        return self._machine.spec

    async def wait_for_state(self, *states: State, timeout_s: float | None = None) -> bool:
        """Wait until it is in one of `states`; false when that took too long."""
        return await self._wait_for(lambda: self._machine.state in states, timeout_s)

    # --- the owner ------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        try:
            while True:
                self._tell()
                item = await self._next_mail()
                now = self._clock()
                for action in self._actions(item, now):
                    self._do(action)
                if self._machine.state is State.STOPPED and item in ("stop", "end", "end loading", "over"):
                    break
        except Exception as error:
            # A fault of our own: the engine is ended below, and people must see that nobody watches over it now.
            log.exception("engine_owner_crashed", model=self.spec.model_id)
            message = f"the supervision of this engine broke: {error!r}"
            self._machine.crashed(Cause(CauseKind.UNKNOWN, message, "restart the agent, and report it"), self._clock())
        finally:
            await self._close()

    def _actions(self, item: "Event | _Ask | None", now: float) -> list[Action]:
        machine = self._machine
        match item:
            case None | "over":
                return machine.tick(now)
            case "start":
                return machine.start(now)
            case "stop":
                return machine.stop(now)
            case "end":
                return machine.end()
            case "end loading":
                return machine.end(min(_LOADING_TERM_GRACE_S, machine.timing.term_grace_s))
            case _:
                stopping = machine.state is State.STOPPING
                actions = machine.handle(item, now)
                if stopping and machine.state is State.STOPPED:
                    self._mail.put_nowait("over")
                return [*actions, *machine.tick(now)]

    async def _next_mail(self) -> "Event | _Ask | None":
        due_in_s = self._machine.due_at() - self._clock()
        if due_in_s <= 0 and self._mail.empty():
            return None
        try:
            async with asyncio.timeout(None if due_in_s == float("inf") else max(0.0, due_in_s)):
                return await self._mail.get()
        except TimeoutError:
            return None

    def _do(self, action: Action) -> None:
        match action:
            case Launch(run, spec):
                self._launch(run, spec)
            case Look(run, starting):
                self._spawn(self._look(run, starting=starting))
            case Canary(run, limit_s):
                self._spawn(self._canary(run, limit_s))
            case EndGroup(run, term_grace_s):
                self._spawn(self._end(run, term_grace_s))
            case Fetch():
                self._fetching = self._spawn(self._fetch())
            case CancelFetch():
                if self._fetching is not None:
                    self._fetching.cancel()
            case CheckRelease():
                self._spawn(self._check_release())

    # --- actions --------------------------------------------------------------------------------------------------

    def _launch(self, run: int, spec: EngineSpec) -> None:
        around = self._around
        try:
            port = choose_port(around.ports | self._tried_ports, around.draw)
            self._api_key = secrets.token_urlsafe(24)
            process = EngineProcess.launch(spec, port, self._api_key, around.run_dir, self._log, around.base_env)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = CauseKind.DISK_FULL if full else CauseKind.UNKNOWN
            message = f"the engine cannot be launched: {error.strerror or error}"
            self._mail.put_nowait(LaunchFailed(run, Cause(kind, message, "run brain-node doctor")))
            return
        around.ports.add(port)
        self._process = process
        self._probe = EngineProbe(port, self._api_key, spec.model_id, around.timing.look_timeout_s)
        process.on_exit(lambda code: self._mail.put_nowait(Exited(run, code)))
        log.info("engine_launched", model=spec.model_id, pid=process.pid, port=port, context=spec.context)

    async def _look(self, run: int, *, starting: bool) -> None:
        result = ProbeResult(healthy=False, serves=None, marks=None)
        owns: bool | None = None
        stopped = 0
        process, probe = self._process, self._probe
        try:
            if process is not None and probe is not None:
                result = await probe.look(starting=starting)
                owns = await process.owns_listener() if starting and result.healthy else None
                stopped = await process.look(shared_memory_too=starting)
        finally:
            self._mail.put_nowait(Looked(run, result, owns, stopped))

    async def _canary(self, run: int, limit_s: float) -> None:
        result = CanaryResult.SILENT
        try:
            if self._probe is not None:
                result = await self._probe.canary(limit_s)
        finally:
            self._mail.put_nowait(CanaryBack(run, result))

    async def _end(self, run: int, term_grace_s: float) -> None:
        process, probe = self._process, self._probe
        assert process is not None
        was_ready = self._machine.was_ready
        leftovers = await process.end(term_grace_s)
        if probe is not None:
            await probe.close()
        if leftovers:
            self.leftovers.append(leftovers)
            log.error("engine_leftovers", model=self.spec.model_id, pids=leftovers.processes, files=leftovers.files)
        cause = classify(self._log.tail(), process.code, was_ready=was_ready)
        self._around.ports.discard(process.port)
        if cause.kind is CauseKind.PORT_TAKEN:
            self._tried_ports.add(process.port)
        self._process = self._probe = None
        log.info("engine_ended", model=self.spec.model_id, pid=process.pid, code=process.code, read=cause.kind.value)
        if leftovers.processes:
            self._unended.append(process.record)
        self._mail.put_nowait(Ended(run, cause, await self._held()))

    async def _fetch(self) -> None:
        assert self._fetch_weights is not None
        try:
            path = await self._fetch_weights(self._note_progress)
        except FetchError as error:
            self._mail.put_nowait(FetchFailed(error.cause))
        except Exception as error:
            log.exception("fetch_crashed", model=self.spec.model_id)
            cause = Cause(
                CauseKind.DOWNLOAD_FAILED, f"fetching the weights failed: {error}", "look into the agent's log"
            )
            self._mail.put_nowait(FetchFailed(cause))
        else:
            self._mail.put_nowait(Fetched(path))

    async def _check_release(self) -> None:
        self._mail.put_nowait(Released(await self._held()))

    async def _held(self) -> str | None:
        for record in tuple(self._unended):
            if stubborn := await asyncio.to_thread(kill_all, record, 1.0):
                return f"process {stubborn[0]} of the old engine does not end"
            self._unended.remove(record)
        if self._release_check is None:
            return None
        try:
            return await self._release_check()
        except Exception:  # a broken check must not keep an engine down for ever
            log.exception("release_check_crashed", model=self.spec.model_id)
            return None

    def _note_progress(self, progress: DownloadProgress) -> None:
        self._progress = progress
        self._tell()

    # --- plumbing -------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._worked)
        return task

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine_work_crashed", model=self.spec.model_id, error=repr(error))

    def _tell(self) -> None:
        """Call the listeners if anything but the passing of time has changed."""
        view = self.view()
        quiet = replace(view, elapsed_s=0.0, next_retry_s=None, last_line="")
        self._changed.set()
        key = (quiet, self._machine.next_start_at)
        if key == self._shown:
            return
        was = self._shown[0].state if self._shown else None
        self._shown = key
        if was is not view.state:
            cause = view.cause.kind.value if view.cause and not view.ready else None
            log.info("engine_state", model=view.model_id, state=view.state.value, was=was, cause=cause)
        for callback in tuple(self._listeners):
            callback(view)

    def _idle(self) -> bool:
        vitality = self._machine.vitality
        return vitality is None or vitality.active == 0

    async def _wait_for(self, true: Callable[[], bool], timeout_s: float | None = None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not true():
                    self._changed.clear()
                    if true():
                        break
                    await self._changed.wait()
        except TimeoutError:
            return true()
        return True

    async def _close(self) -> None:
        for task in tuple(self._work):
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        if self._process is not None:  # the owner itself was cancelled: nothing may stay
            await self._process.end(0.0)
            self._around.ports.discard(self._process.port)
            self._process = None
        if self._probe is not None:
            await self._probe.close()
            self._probe = None
        self._log.close()
        self._tell()


_Ask = Literal["start", "stop", "end", "end loading", "over"]
