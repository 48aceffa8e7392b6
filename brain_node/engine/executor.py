"""Does what an engine's state machine decides: starts and ends its process, looks at it, fetches its weights.

What came of each action is posted to the owner of the machine; nothing here decides anything.
"""

import asyncio
import errno
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

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
from brain_node.engine.fetch import FetchError, FetchWeights
from brain_node.engine.group import Leftovers, kill_all
from brain_node.engine.logs import EngineLog
from brain_node.engine.ports import choose_port
from brain_node.engine.probe import CanaryResult, EngineProbe, ProbeResult
from brain_node.engine.process import EngineProcess
from brain_node.engine.run_record import RunRecord
from brain_node.engine.spec import EngineSpec
from brain_node.engine.states import EngineMachine
from brain_node.engine.surroundings import Surroundings
from brain_node.engine.view import DownloadProgress

log = structlog.get_logger(__name__)

ReleaseCheck = Callable[[], Awaitable[str | None]]
"""Says what keeps the engine from starting again, such as memory that did not come back, or `None`."""


class ActionExecutor:
    """The process of one engine, and everything that is done with it.

    Args:
        machine: whose actions these are; only read here.
        surroundings: what this agent's engines share.
        engine_log: where the engine's output goes.
        fetch: how its weights are fetched; `None` when they are on the disk.
        release_check: asked after each end, before the next start.
        post: takes what came of an action.
        progressed: called when a download has come further.
    """

    def __init__(
        self,
        machine: EngineMachine,
        surroundings: Surroundings,
        engine_log: EngineLog,
        fetch: FetchWeights | None,
        release_check: ReleaseCheck | None,
        post: Callable[[Event], None],
        progressed: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._around = surroundings
        self._log = engine_log
        self._fetch_weights = fetch
        self._release_check = release_check
        self._post = post
        self._progressed = progressed
        self._probe: EngineProbe | None = None
        self._tried_ports: set[int] = set()
        self._unended: list[RunRecord] = []
        self._work: set[asyncio.Task[None]] = set()
        self._fetching: asyncio.Task[None] | None = None
        self.process: EngineProcess | None = None
        """The engine's process, while there is one."""
        self.api_key = ""
        """What its `/v1` routes ask for; a new one each start."""
        self.progress: DownloadProgress | None = None
        """How far its weights have come."""
        self.leftovers: list[Leftovers] = []
        """What could not be removed after an end; empty when all went well."""

    def do(self, action: Action) -> None:
        """Begin an action; what came of it is posted."""
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

    async def close(self) -> None:
        """End everything that is under way, the process too."""
        for task in tuple(self._work):
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        if self.process is not None:  # the owner itself was cancelled: nothing may stay
            await self.process.end(0.0)
            self._around.ports.discard(self.process.port)
            self.process = None
        if self._probe is not None:
            await self._probe.close()
            self._probe = None

    def _launch(self, run: int, spec: EngineSpec) -> None:
        around = self._around
        try:
            port = choose_port(around.ports | self._tried_ports, around.draw)
            self.api_key = secrets.token_urlsafe(24)
            process = EngineProcess.launch(spec, port, self.api_key, around.run_dir, self._log, around.base_env)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = CauseKind.DISK_FULL if full else CauseKind.UNKNOWN
            message = f"the engine cannot be launched: {error.strerror or error}"
            self._post(LaunchFailed(run, Cause(kind, message, "run brain-node doctor")))
            return
        around.ports.add(port)
        self.process = process
        self._probe = EngineProbe(port, self.api_key, spec.model_id, around.timing.look_timeout_s)
        process.on_exit(lambda code: self._post(Exited(run, code)))
        log.info("engine_launched", model=spec.model_id, pid=process.pid, port=port, context=spec.context)

    async def _look(self, run: int, *, starting: bool) -> None:
        result = ProbeResult(healthy=False, serves=None, marks=None)
        owns: bool | None = None
        stopped = 0
        process, probe = self.process, self._probe
        try:
            if process is not None and probe is not None:
                result = await probe.look(starting=starting)
                owns = await process.owns_listener() if starting and result.healthy else None
                stopped = await process.look(shared_memory_too=starting)
        finally:
            self._post(Looked(run, result, owns, stopped))

    async def _canary(self, run: int, limit_s: float) -> None:
        result = CanaryResult.SILENT
        try:
            if self._probe is not None:
                result = await self._probe.canary(limit_s)
        finally:
            self._post(CanaryBack(run, result))

    async def _end(self, run: int, term_grace_s: float) -> None:
        process, probe = self.process, self._probe
        assert process is not None
        was_ready = self._machine.was_ready
        ended_by_us, said = process.running, self._log.tail()
        try:
            leftovers = await process.end(term_grace_s)
        except Exception:  # an end that nobody hears of would be waited for without end
            log.exception("engine_end_crashed", model=self._machine.spec.model_id)
            leftovers = Leftovers(processes=(process.pid,))
        if probe is not None:
            await probe.close()
        if leftovers:
            self.leftovers.append(leftovers)
            log.error(
                "engine_leftovers", model=self._machine.spec.model_id, pids=leftovers.processes, files=leftovers.files
            )
        if ended_by_us:  # its exit code and its last words are our doing
            cause = classify(said, None, was_ready=was_ready)
        else:
            cause = classify(self._log.tail(), process.code, was_ready=was_ready)
        self._around.ports.discard(process.port)
        if cause.kind is CauseKind.PORT_TAKEN:
            self._tried_ports.add(process.port)
        self.process = self._probe = None
        log.info(
            "engine_ended", model=self._machine.spec.model_id, pid=process.pid, code=process.code, read=cause.kind.value
        )
        if leftovers.processes:
            self._unended.append(process.record)
        self._post(Ended(run, cause, await self._held()))

    async def _fetch(self) -> None:
        assert self._fetch_weights is not None
        try:
            path = await self._fetch_weights(self._note_progress)
        except FetchError as error:
            self._post(FetchFailed(error.cause))
        except Exception as error:
            log.exception("fetch_crashed", model=self._machine.spec.model_id)
            cause = Cause(
                CauseKind.DOWNLOAD_FAILED, f"fetching the weights failed: {error}", "look into the agent's log"
            )
            self._post(FetchFailed(cause))
        else:
            self._post(Fetched(path))

    async def _check_release(self) -> None:
        self._post(Released(await self._held()))

    async def _held(self) -> str | None:
        try:
            for record in tuple(self._unended):
                if stubborn := await asyncio.to_thread(kill_all, record, 1.0):
                    return f"process {stubborn[0]} of the old engine does not end"
                self._unended.remove(record)
            return None if self._release_check is None else await self._release_check()
        except Exception:  # a broken check must not keep an engine down for ever
            log.exception("release_check_crashed", model=self._machine.spec.model_id)
            return None

    def _note_progress(self, progress: DownloadProgress) -> None:
        self.progress = progress
        self._progressed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._worked)
        return task

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine_work_crashed", model=self._machine.spec.model_id, error=repr(error))
