"""Runs one engine for as long as it is wanted: the shell that feeds its state machine and does what that says.

One task owns the machine and the process. Everybody else posts to its mailbox, reads views, or notes signs of life.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, Literal

import structlog

from brain_node.engine.argv import HOST
from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.events import Action, Event
from brain_node.engine.executor import ActionExecutor, ReleaseCheck
from brain_node.engine.fetch import FetchWeights
from brain_node.engine.group import Leftovers
from brain_node.engine.job import EngineJob
from brain_node.engine.logs import EngineLog, log_path
from brain_node.engine.run_record import RunRecord
from brain_node.engine.spec import EngineSpec
from brain_node.engine.states import EngineMachine, State
from brain_node.engine.surroundings import Surroundings
from brain_node.engine.view import EngineView
from brain_node.link.backoff import Backoff

log = structlog.get_logger(__name__)

_LOADING_TERM_GRACE_S: Final = 1.0


class EngineSupervisor:
    """One engine, launched and kept alive.

    Args:
        spec: what it shall be.
        surroundings: what this agent's engines share.
        fetch: how its weights are fetched before the first start; `None` when they are on the disk.
        release_check: asked after each end, before the next start.
        may_launch: asked at each start, the first one too: whether it is its turn.
    """

    def __init__(
        self,
        spec: EngineSpec,
        surroundings: Surroundings,
        fetch: FetchWeights | None = None,
        release_check: ReleaseCheck | None = None,
        may_launch: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = surroundings.clock
        self._machine = EngineMachine(
            spec=spec,
            timing=surroundings.timing,
            start_backoff=Backoff(surroundings.timing.start_backoff, surroundings.draw),
            crash_backoff=Backoff(surroundings.timing.crash_backoff, surroundings.draw),
            needs_fetch=fetch is not None,
            may_launch=may_launch,
            since=surroundings.clock(),
        )
        self._log = EngineLog(log_path(surroundings.data_dir, spec.slug))
        self._executor = ActionExecutor(
            self._machine, surroundings, self._log, fetch, release_check, self._post, self._tell
        )
        self._mail: asyncio.Queue[Event | _Ask] = asyncio.Queue()
        self._owner: asyncio.Task[None] | None = None
        self._begun = False
        """Whether the last request to start was taken."""
        self._stops = 0
        self._listeners: list[Callable[[EngineView], None]] = []
        self._shown: tuple[Any, ...] = ()
        self._changed = asyncio.Event()

    # --- what others call -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin, or begin anew after it failed; returns once that is under way."""
        owner = self._owner
        if owner is not None and not owner.done() and await self._ask_to_start(owner):
            return
        if self._owner is owner:  # there is none, or it was just ending: another one takes it
            self._mail = asyncio.Queue()  # words to an earlier owner are void
            self._owner = asyncio.create_task(self._own(), name=f"engine {self._machine.spec.slug}")
            self._owner.add_done_callback(lambda _: self._changed.set())
        assert self._owner is not None
        await self._ask_to_start(self._owner)

    async def _ask_to_start(self, owner: "asyncio.Task[None]") -> bool:
        self._begun = False
        self._mail.put_nowait("start")
        await self._wait_for(lambda: self._begun or owner.done())
        return self._begun

    async def stop(self, drain_s: float = 0.0, abort: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop for good; may be called at any time, also again with less patience, and during a start.

        Args:
            drain_s: how long running jobs may go on; new ones are refused at once.
            abort: ends the jobs that are left then. An engine that gets SIGTERM with streams open can hang for good.
        """
        owner = self._owner
        if owner is None or owner.done():
            return
        self._stops += 1
        try:
            loading = self._machine.state is State.STARTING
            self._mail.put_nowait("stop")
            stopping = (State.STOPPING, State.STOPPED)
            await self._wait_for(lambda: self._machine.state in stopping or owner.done())
            if not await self._wait_for(self._idle, drain_s) and abort is not None:
                await abort()
                await self._wait_for(self._idle, 1.0)
            self._mail.put_nowait("end loading" if loading else "end")
            await asyncio.wait([owner])
        finally:
            self._stops -= 1

    @property
    def stopping(self) -> bool:
        """Whether a stop is under way: a start would come too early."""
        return self._stops > 0

    @property
    def settling(self) -> bool:
        """Whether its process comes up or goes, so that what it leaves of a card is not to be measured now."""
        if self._machine.state is State.STARTING:
            return True
        return self._executor.process is not None and self._machine.state not in (State.READY, State.STALLED)

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
        process = self._executor.process
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
            next_retry_s=max(0.0, retry_at - now) if retry_at is not None and not machine.waits else None,
            waits=machine.waits,
            progress=self._executor.progress if machine.state is State.DOWNLOADING else None,
            last_line=self._log.last_line if machine.state is State.STARTING else "",
            log_path=str(self._log.path),
        )

    @property
    def api_key(self) -> str:
        """What its `/v1` routes ask for; a new one each start."""
        return self._executor.api_key

    @property
    def record(self) -> RunRecord | None:
        """What is on record of its process, while there is one."""
        process = self._executor.process
        return process.record if process else None

    @property
    def leftovers(self) -> list[Leftovers]:
        """What could not be removed after an end; empty when all went well."""
        return self._executor.leftovers

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
                    self._executor.do(action)
                if self._machine.state is State.STOPPED and item in ("stop", "end", "end loading", "over"):
                    break
        except Exception as error:
            # A fault of our own: the engine is ended below, and people must see that nobody watches over it now.
            log.exception("engine_owner_crashed", model=self.spec.model_id)
            message = f"the supervision of this engine broke: {error!r}"
            self._machine.crashed(Cause(CauseKind.UNKNOWN, message, "report it"), self._clock())
        finally:
            try:
                await self._executor.close()
            except Exception:
                log.exception("engine_not_tidied_up", model=self.spec.model_id)
            self._log.close()
            self._tell()

    def _actions(self, item: "Event | _Ask | None", now: float) -> list[Action]:
        machine = self._machine
        match item:
            case None | "over":
                return machine.tick(now)
            case "start":
                self._begun = True
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

    # --- plumbing -------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Call the listeners if anything but the passing of time has changed."""
        view = self.view()
        quiet = replace(view, elapsed_s=0.0, next_retry_s=None, last_line="")
        self._changed.set()
        key = (quiet, None if view.waits else self._machine.next_start_at)
        if key == self._shown:
            return
        was = self._shown[0].state if self._shown else None
        self._shown = key
        if was is not view.state:
            cause = view.cause.kind.value if view.cause and not view.ready else None
            log.info("engine_state", model=view.model_id, state=view.state.value, was=was, cause=cause)
        for callback in tuple(self._listeners):
            callback(view)

    def _post(self, event: Event) -> None:
        self._mail.put_nowait(event)

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


_Ask = Literal["start", "stop", "end", "end loading", "over"]
