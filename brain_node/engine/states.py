"""The life of one engine as a state machine without I/O: events and the time go in, actions come out.

Alive, ready and making progress are three different things. Ready needs the child alive, its health route, the right
model listed by the engine's own listener, and one token as proof. After that only progress counts (`vitality`).
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.decisions import Decision, Verdict, decide
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
    RunEvent,
)
from brain_node.engine.probe import CanaryResult
from brain_node.engine.spec import EngineSpec
from brain_node.engine.timing import Timing
from brain_node.engine.vitality import Vitality
from brain_node.link.backoff import Backoff


class State(StrEnum):
    """Where an engine stands."""

    STOPPED = "stopped"  # not wanted now
    DOWNLOADING = "downloading"  # its weights are being fetched
    STARTING = "starting"  # its process runs, it does not serve yet
    READY = "ready"  # it serves
    STALLED = "stalled"  # it ought to make progress and does not; ended soon unless it wakes up
    STOPPING = "stopping"  # asked to stop: takes no jobs, running ones may finish
    BACKING_OFF = "backing_off"  # it ended; it starts again by itself
    FAILED = "failed"  # it ended and only the operator can help


@dataclass(slots=True)
class _Run:
    """The process that runs now."""

    number: int
    launched_at: float
    next_look_at: float
    vitality: Vitality
    ready_at: float | None = None
    stalled_at: float | None = None
    looking: bool = False
    ending: bool = False
    stranger_looks: int = 0
    port_note: str = ""


@dataclass(slots=True)
class EngineMachine:
    """One engine's states, driven by its one owner: requests, `handle` for events, `tick` when `due_at` has come."""

    spec: EngineSpec
    timing: Timing
    start_backoff: Backoff
    crash_backoff: Backoff
    needs_fetch: bool = False
    may_launch: Callable[[], bool] = lambda: True
    """Asked at each launch: false while an engine on the same card comes up or goes, as each measures what is free there."""
    state: State = State.STOPPED
    since: float = 0.0
    """When the state began (monotonic seconds)."""
    cause: Cause | None = None
    """Why it last ended or cannot run; stays until it has run well for a while."""
    decision: Decision | None = None
    next_start_at: float | None = None
    starts: int = 0
    start_s: float | None = None
    """From launch to ready, of the last time."""
    held: str | None = None
    """What keeps it from starting again, such as memory that did not come back."""
    waits: bool = False
    """Whether it would start now if it were its turn."""
    _run: _Run | None = None
    _failures: Counter[CauseKind] = field(default_factory=Counter)
    _own_cause: Cause | None = None
    _checking: bool = False

    @property
    def vitality(self) -> Vitality | None:
        """Signs of life of the process that runs now."""
        return self._run.vitality if self._run is not None else None

    @property
    def was_ready(self) -> bool:
        """Whether the process that runs now has served."""
        return self._run is not None and self._run.ready_at is not None

    # --- what the owner asks for ----------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """Begin, or begin anew after a failure."""
        if self.state not in (State.STOPPED, State.FAILED, State.BACKING_OFF) or self._run is not None:
            return []
        self._failures.clear()
        self.cause, self.decision = None, None
        return self._fetch(now) if self.needs_fetch else self._launch(now)

    def stop(self, now: float) -> list[Action]:
        """Take no more jobs; `end` follows once they are done or were aborted."""
        if self._run is not None:
            if self.state is not State.STOPPING:
                self._go(State.STOPPING, now)
            return []
        was = self.state
        self.next_start_at = None
        self._go(State.STOPPED, now)
        return [CancelFetch()] if was is State.DOWNLOADING else []

    def end(self, term_grace_s: float | None = None) -> list[Action]:
        """End the process of an engine that is stopping."""
        if self.state is not State.STOPPING:
            return []
        return self._end_group(self.timing.term_grace_s if term_grace_s is None else term_grace_s)

    def crashed(self, cause: Cause, now: float) -> None:
        """Its owner broke; what ran is being ended."""
        self._run, self.cause, self.decision, self.next_start_at = None, cause, None, None
        self._go(State.FAILED, now)

    # --- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in an event; those of an earlier process change nothing."""
        match event:
            case Fetched(path):
                return self._fetched(event, now) if path and self.state is State.DOWNLOADING else []
            case FetchFailed(cause):
                return self._after_end(cause, now, was_ready=False) if self.state is State.DOWNLOADING else []
            case Released(held):
                return self._released(held, now)
            case _:
                run = self._run
                return self._run_event(run, event, now) if run is not None and event.run == run.number else []

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        run = self._run
        if run is None:
            return self._retry(now) if self.state is State.BACKING_OFF else []
        if run.ending or self.state is State.STOPPING:
            return []
        actions: list[Action] = []
        if self.state is State.STARTING:
            if now - run.launched_at >= self.timing.start_limit_s:
                return self._give_up(self._start_timeout(run, now), now)
        else:
            self._judge(run, now)
            if run.stalled_at is not None and now - run.stalled_at >= self.timing.stall_grace_s:
                return self._give_up(self._own_cause or self._hung("it did not wake up"), now)
            if run.vitality.canary_due(now):
                actions.append(self._canary(run, self.timing.canary_limit_s, now))
        if not run.looking and now >= run.next_look_at:
            run.looking = True
            actions.append(Look(run.number, starting=self.state is State.STARTING))
        return actions

    def due_at(self) -> float:
        """When `tick` wants to be called at the latest; infinity when only an event can change anything."""
        run = self._run
        if run is None:
            waits = self.state is State.BACKING_OFF and not self._checking and self.next_start_at is not None
            return self.next_start_at if waits and self.next_start_at is not None else math.inf
        if run.ending or self.state is State.STOPPING:
            return math.inf
        times = [] if run.looking else [run.next_look_at]
        if self.state is State.STARTING:
            times.append(run.launched_at + self.timing.start_limit_s)
        elif run.vitality.active == 0 and not run.vitality.canary_out:
            times.append(run.vitality.next_canary_at())
        if run.stalled_at is not None:
            times.append(run.stalled_at + self.timing.stall_grace_s)
        return min(times, default=math.inf)

    # --- a process that runs --------------------------------------------------------------------------------------

    def _run_event(self, run: _Run, event: RunEvent, now: float) -> list[Action]:
        match event:
            case Looked():
                return self._looked(run, event, now)
            case CanaryBack(_, result):
                return self._canary_back(run, result, now)
            case Exited():
                return self._end_group(0.0)
            case LaunchFailed(_, cause):
                return self._settle(cause, None, now, run)
            case Ended(_, cause, held):
                return self._settle(self._cause_of_end(cause), held, now, run)

    def _launch(self, now: float) -> list[Action]:
        self.waits = not self.may_launch()
        if self.waits:
            self.next_start_at = now + self.timing.look_starting_s
            if self.state is not State.BACKING_OFF:
                self._go(State.BACKING_OFF, now)
            return []
        self.starts += 1
        self._run = _Run(self.starts, now, now + self.timing.look_starting_s, Vitality(self.timing, life_at=now))
        self._own_cause, self.next_start_at, self.held = None, None, None
        self._go(State.STARTING, now)
        return [Launch(self.starts, self.spec)]

    def _looked(self, run: _Run, event: Looked, now: float) -> list[Action]:
        run.looking = False
        if self.state is State.STARTING:
            run.next_look_at = now + self.timing.look_starting_s
            return self._looked_while_starting(run, event, now)
        run.vitality.looked(event, now)
        stalled = self.state is State.STALLED
        run.next_look_at = now + (self.timing.look_stalled_s if stalled else self.timing.look_ready_s)
        self._judge(run, now)
        return []

    def _looked_while_starting(self, run: _Run, event: Looked, now: float) -> list[Action]:
        if not event.result.healthy or run.ending:
            return []
        if event.owns_listener is False:
            run.port_note = "another program answers on its port"
            run.stranger_looks += 1
            if run.stranger_looks >= self.timing.looks_needed:
                return self._give_up(self._stranger(run, "it is not ready"), now)
            return []
        if not event.result.serves:
            listed = ", ".join(event.result.other_models) or "no model"
            run.port_note = f"what answers on its port lists {listed} and not {self.spec.model_id}"
            return []
        run.port_note = ""
        return [] if run.vitality.canary_out else [self._canary(run, self.timing.start_canary_limit_s, now)]

    def _canary(self, run: _Run, limit_s: float, now: float) -> Action:
        run.vitality.canary_sent(now)
        return Canary(run.number, limit_s)

    def _canary_back(self, run: _Run, result: CanaryResult, now: float) -> list[Action]:
        run.vitality.canary_back(result, now)
        if run.ending:
            return []
        if self.state is State.STARTING:
            if result is not CanaryResult.SILENT:  # a silent one: the next look asks again, within the start limit
                self._ready(run, now)
        else:
            self._judge(run, now)
        return []

    def _ready(self, run: _Run, now: float) -> None:
        run.ready_at, run.next_look_at = now, now + self.timing.look_ready_s
        self.start_s = now - run.launched_at
        self.start_backoff.up(now)
        self.crash_backoff.up(now)
        self._go(State.READY, now)

    def _judge(self, run: _Run, now: float) -> None:
        """Between READY and STALLED, by the signs of life alone."""
        if self.state is State.READY:
            if (why := run.vitality.stall(now)) is not None:
                self._own_cause = self.cause = self._hung(why)
                run.stalled_at, run.next_look_at = now, now
                self._go(State.STALLED, now)
            elif run.ready_at is not None and now - run.ready_at >= self.timing.stable_after_s:
                self._failures.clear()
                self.cause, self.decision = None, None
        elif self.state is State.STALLED and run.stalled_at is not None and run.vitality.life_at > run.stalled_at:
            run.stalled_at, self._own_cause = None, None
            run.vitality.woken()
            self._go(State.READY, now)

    # --- its end, and what follows --------------------------------------------------------------------------------

    def _give_up(self, cause: Cause, now: float) -> list[Action]:
        self._own_cause = self.cause = cause
        self._go(State.BACKING_OFF, now)
        return self._end_group(0.0)

    def _end_group(self, term_grace_s: float) -> list[Action]:
        run = self._run
        if run is None or run.ending:
            return []
        run.ending = True
        return [EndGroup(run.number, term_grace_s)]

    def _settle(self, cause: Cause, held: str | None, now: float, run: _Run) -> list[Action]:
        self._run = None
        if self.state is State.STOPPING:
            self._go(State.STOPPED, now)
            return []
        self.held = held
        return self._after_end(cause, now, was_ready=run.ready_at is not None)

    def _after_end(self, cause: Cause, now: float, *, was_ready: bool) -> list[Action]:
        self.cause, self.waits = cause, False
        self._failures[cause.kind] += 1
        self.decision = decide(cause, self.spec, self._failures, was_ready=was_ready)
        delay_s = (self.crash_backoff if was_ready else self.start_backoff).down(now)
        if self.decision.verdict is Verdict.STOP:
            self.next_start_at = None
            self._go(State.FAILED, now)
            return []
        self.spec = self.decision.spec
        self.next_start_at = now + (self.timing.port_again_s if self.decision.soon else delay_s)
        self._go(State.BACKING_OFF, now)
        return []

    def _retry(self, now: float) -> list[Action]:
        if self._checking or self.next_start_at is None or now < self.next_start_at:
            return []
        if self.held is not None:
            self._checking = True
            return [CheckRelease()]
        return self._fetch(now) if self.needs_fetch else self._launch(now)

    def _released(self, held: str | None, now: float) -> list[Action]:
        self._checking = False
        if self.state is not State.BACKING_OFF:
            return []
        self.held = held
        if held is None:
            return self._retry(now)
        self.cause = Cause(
            CauseKind.MEMORY_HELD, held, "end the process that holds it; the engine then starts by itself"
        )
        self.next_start_at = now + self.timing.release_again_s
        return []

    def _fetch(self, now: float) -> list[Action]:
        self.next_start_at = None
        self._go(State.DOWNLOADING, now)
        return [Fetch()]

    def _fetched(self, event: Fetched, now: float) -> list[Action]:
        self.needs_fetch = False
        self.spec = replace(self.spec, model_path=event.path)
        return self._launch(now)

    def _go(self, state: State, now: float) -> None:
        self.state, self.since = state, now
        self.waits = self.waits and state is State.BACKING_OFF

    # --- causes that the machine itself finds ---------------------------------------------------------------------

    def _cause_of_end(self, read: Cause) -> Cause:
        """What ended it: what was found here, or what its log says where that knows better."""
        own = self._own_cause
        # On a busy machine the root may be so slow to follow its dead core that it is found hanging first.
        if own is None or (own.kind is CauseKind.HUNG and read.kind is CauseKind.ENGINE_CORE_DIED):
            return read
        return own

    def _hung(self, why: str) -> Cause:
        return Cause(
            CauseKind.HUNG, f"the engine hangs: {why}", "it is started again; if this repeats, look into its log"
        )

    def _stranger(self, run: _Run, what: str) -> Cause:
        return Cause(CauseKind.PORT_TAKEN, f"{what}: {run.port_note}", "another port is tried by itself")

    def _start_timeout(self, run: _Run, now: float) -> Cause:
        waited = f"not ready {now - run.launched_at:.0f} s after its start"
        if run.port_note:
            return self._stranger(run, waited)
        return Cause(
            CauseKind.START_TIMEOUT, waited, "it is started again; a slow disk or a large model needs a longer limit"
        )
