"""The state machine alone, on a clock that the test moves."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.environments import Flavour
from brain_node.engine.events import (
    Canary,
    CanaryBack,
    CancelFetch,
    CheckRelease,
    Ended,
    EndGroup,
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
from brain_node.engine.probe import CanaryResult, ProbeResult
from brain_node.engine.spec import EngineSpec
from brain_node.engine.states import EngineMachine, State
from brain_node.engine.timing import Timing
from brain_node.link.backoff import Backoff

SPEC = EngineSpec("test/model", Path("/srv/model"), ("vllm",), Flavour.CUDA)
HEALTHY = ProbeResult(healthy=True, serves=True, marks=(0.0,))
KILLED = Cause(CauseKind.KILLED, "killed", "wait")


class Bench:
    """A machine, its clock, and the actions it asked for."""

    def __init__(self, needs_fetch: bool = False) -> None:
        self.now = 1000.0
        timing = Timing()
        backoffs = (Backoff(policy, lambda: 0.5) for policy in (timing.start_backoff, timing.crash_backoff))
        self.machine = EngineMachine(SPEC, timing, *backoffs, needs_fetch=needs_fetch)

    @property
    def state(self) -> State:
        return self.machine.state

    def start(self):
        return self.machine.start(self.now)

    def says(self, event):
        return self.machine.handle(event, self.now)

    def after(self, seconds: float):
        self.now += seconds
        return self.machine.tick(self.now)

    def look(self, result: ProbeResult = HEALTHY, owns: bool | None = True, stopped: int = 0):
        """Move to the next look and answer it; gives what the machine did then."""
        for _ in range(100):
            actions = self.after(max(0.0, self.machine.due_at() - self.now))
            for action in actions:
                if isinstance(action, Canary):
                    self.says(CanaryBack(action.run, CanaryResult.ANSWERED))
            if look := next((action for action in actions if isinstance(action, Look)), None):
                return self.says(Looked(look.run, result, owns, stopped))
        raise AssertionError("no look came")

    def make_ready(self) -> None:
        self.start()
        (canary,) = self.look()
        assert isinstance(canary, Canary)
        self.says(CanaryBack(canary.run, CanaryResult.ANSWERED))
        assert self.state is State.READY

    @property
    def run(self) -> int:
        return self.machine.starts


def test_ready_takes_health_the_right_model_its_own_listener_and_a_token():
    bench = Bench()
    assert bench.start() == [Launch(1, SPEC)]
    assert bench.look(ProbeResult(healthy=False, serves=None, marks=None)) == []
    assert bench.look(ProbeResult(True, False, None, ("other/model",))) == []
    assert bench.look(HEALTHY, owns=False) == []
    (canary,) = bench.look()
    assert bench.state is State.STARTING
    bench.says(CanaryBack(1, CanaryResult.SILENT))
    assert bench.state is State.STARTING
    (canary,) = bench.look()
    bench.says(CanaryBack(canary.run, CanaryResult.ANSWERED))
    assert bench.state is State.READY
    assert bench.machine.start_s == bench.now - 1000.0


def test_an_engine_that_does_not_take_completions_is_ready_all_the_same():
    bench = Bench()
    bench.start()
    bench.look()
    bench.says(CanaryBack(1, CanaryResult.REFUSED))
    assert bench.state is State.READY


@pytest.mark.case("B-06")
def test_a_stranger_that_answers_again_and_again_means_another_port():
    bench = Bench()
    bench.start()
    assert bench.look(owns=False) == []
    assert bench.look(owns=False) == []
    assert bench.look(owns=False) == [EndGroup(1, 0.0)]
    bench.says(Ended(1, KILLED, None))
    assert bench.machine.cause.kind is CauseKind.PORT_TAKEN
    assert bench.after(1.0) == [Launch(2, SPEC)]


@pytest.mark.case("B-04")
def test_a_start_is_given_its_whole_limit_and_the_next_one_too():
    bench = Bench()
    bench.start()
    bench.now += 1799
    assert not any(isinstance(action, EndGroup) for action in bench.machine.tick(bench.now))
    assert bench.after(1) == [EndGroup(1, 0.0)]
    bench.says(Ended(1, KILLED, None))
    assert bench.machine.cause.kind is CauseKind.START_TIMEOUT
    assert bench.state is State.BACKING_OFF
    assert bench.after(300) == [Launch(2, SPEC)]


def test_the_root_going_away_ends_the_rest_of_the_group():
    bench = Bench()
    bench.make_ready()
    assert bench.says(Exited(1, 0)) == [EndGroup(1, 0.0)]
    assert bench.says(Exited(1, 0)) == []
    bench.says(Ended(1, KILLED, None))
    assert bench.state is State.BACKING_OFF
    assert bench.machine.cause is KILLED


def test_words_about_an_earlier_process_change_nothing():
    bench = Bench()
    bench.make_ready()
    bench.says(Exited(1, 1))
    bench.says(Ended(1, KILLED, None))
    bench.after(10)
    assert bench.run == 2
    assert bench.says(Exited(1, 1)) == []
    assert bench.says(CanaryBack(1, CanaryResult.ANSWERED)) == []
    assert bench.state is State.STARTING


def test_failures_are_spaced_out_and_a_long_good_run_clears_them():
    bench = Bench()
    bench.start()
    delays = []
    for run in range(1, 12):
        bench.says(Exited(run, 1))
        bench.says(Ended(run, KILLED, None))
        delays.append(bench.machine.next_start_at - bench.now)
        bench.after(delays[-1] + 0.001)
    assert delays == sorted(delays)
    assert delays[0] < 2 < 100 < delays[-1] <= 300
    (canary,) = bench.look()
    bench.says(CanaryBack(canary.run, CanaryResult.ANSWERED))
    assert bench.machine.cause is KILLED
    bench.now += 601
    bench.look()
    bench.look()
    assert bench.machine.cause is None
    bench.says(Exited(bench.run, 1))
    bench.says(Ended(bench.run, KILLED, None))
    assert bench.machine.next_start_at - bench.now < 2


def test_an_engine_that_served_comes_back_soon_however_often_it_is_ended():
    bench = Bench()
    bench.start()
    for run in range(1, 20):
        (canary,) = bench.look()
        bench.says(CanaryBack(canary.run, CanaryResult.ANSWERED))
        bench.says(Exited(run, -9))
        bench.says(Ended(run, KILLED, None))
        assert bench.machine.next_start_at - bench.now <= 15
        bench.after(16)
    bench.says(Exited(bench.run, 1))  # and a start that fails then begins with a short wait of its own
    bench.says(Ended(bench.run, KILLED, None))
    assert bench.machine.next_start_at - bench.now < 2


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.case("B-01")
def test_an_idle_engine_is_asked_for_a_token_and_two_silent_ones_show_that_it_hangs():
    bench = Bench()
    bench.make_ready()
    canaries = 0
    while bench.state is State.READY:
        actions = bench.after(max(0.0, bench.machine.due_at() - bench.now))
        for action in actions:
            if isinstance(action, Look):
                bench.says(Looked(action.run, HEALTHY, None, 0))
            if isinstance(action, Canary):
                canaries += 1
                bench.now += action.limit_s
                bench.says(CanaryBack(action.run, CanaryResult.SILENT))
    assert bench.state is State.STALLED
    assert canaries == 2
    assert bench.now - 1000.0 < 90
    bench.now += Timing().stall_grace_s
    assert bench.machine.tick(bench.now) == [EndGroup(1, 0.0)]
    bench.says(Ended(1, KILLED, None))
    assert bench.machine.cause.kind is CauseKind.HUNG


def test_one_silent_canary_is_enough_when_a_process_is_stopped():
    bench = Bench()
    bench.make_ready()
    bench.look(stopped=1)
    bench.machine.vitality.canary_sent(bench.now)
    bench.now += 15
    bench.says(CanaryBack(1, CanaryResult.SILENT))
    assert bench.state is State.STALLED
    assert "stopped" in bench.machine.cause.message


def test_an_engine_found_hanging_because_its_core_had_died_is_told_as_that():
    bench = Bench()
    bench.make_ready()
    bench.look(stopped=1)
    bench.machine.vitality.canary_sent(bench.now)
    bench.says(CanaryBack(1, CanaryResult.SILENT))
    bench.now += Timing().stall_grace_s
    assert bench.machine.tick(bench.now) == [EndGroup(1, 0.0)]
    bench.says(Ended(1, Cause(CauseKind.ENGINE_CORE_DIED, "died", "wait"), None))
    assert bench.machine.cause.kind is CauseKind.ENGINE_CORE_DIED


@pytest.mark.case("B-09")
def test_a_busy_engine_is_never_asked_for_a_token():
    bench = Bench()
    bench.make_ready()
    bench.machine.vitality.job_started(bench.now)
    for _ in range(20):
        actions = bench.after(5)
        assert not any(isinstance(action, Canary) for action in actions)
        for action in actions:
            bench.says(Looked(action.run, ProbeResult(False, None, None), None, 0))
        bench.machine.vitality.job_progress(bench.now)
    assert bench.state is State.READY


@pytest.mark.case("B-09")
def test_a_busy_engine_may_be_silent_for_long_and_not_for_ever():
    bench = Bench()
    bench.make_ready()
    bench.machine.vitality.job_started(bench.now)
    began = bench.now
    while bench.state is State.READY:
        bench.look(ProbeResult(False, None, None))
    assert 180 <= bench.now - began < 200


@pytest.mark.case("B-09")
def test_moving_counters_are_life():
    bench = Bench()
    bench.make_ready()
    bench.machine.vitality.job_started(bench.now)
    for step in range(200):
        bench.look(ProbeResult(True, None, (float(step),)))
    assert bench.state is State.READY


def test_a_stopped_process_of_a_busy_engine_shortens_the_wait():
    bench = Bench()
    bench.make_ready()
    bench.machine.vitality.job_started(bench.now)
    began = bench.now
    while bench.state is State.READY:
        bench.look(HEALTHY, stopped=1)
    assert 15 <= bench.now - began < 30


def test_time_spent_idle_does_not_count_against_the_first_job():
    bench = Bench()
    bench.make_ready()
    for _ in range(100):
        bench.look()
    bench.machine.vitality.job_started(bench.now)
    for _ in range(10):
        bench.look()
    assert bench.state is State.READY


def test_a_canary_that_met_a_job_says_nothing():
    bench = Bench()
    bench.make_ready()
    while not (canaries := [a for a in bench.after(5) if isinstance(a, Canary)]):
        bench.machine._run.looking = False
    bench.machine.vitality.job_started(bench.now)
    bench.now += 20
    bench.says(CanaryBack(1, CanaryResult.SILENT))
    assert bench.machine.vitality.canary_misses == 0
    assert canaries


def test_a_failed_job_makes_an_idle_engine_answer_at_once():
    bench = Bench()
    bench.make_ready()
    bench.now += 3
    bench.machine.vitality.job_started(bench.now)
    bench.machine.vitality.job_finished(bench.now, ok=False)
    assert any(isinstance(action, Canary) for action in bench.machine.tick(bench.now))


def test_a_stalled_engine_that_shows_life_is_ready_again():
    bench = Bench()
    bench.make_ready()
    vitality = bench.machine.vitality
    vitality.job_started(bench.now)
    while bench.state is State.READY:
        bench.look(ProbeResult(False, None, None))
    bench.now += 1
    vitality.job_progress(bench.now)
    bench.machine.tick(bench.now)
    assert bench.state is State.READY
    bench.now += 100
    bench.machine.tick(bench.now)
    assert bench.state is State.READY


# --- weights, memory, stopping ---------------------------------------------------------------------------------------


def test_weights_come_first_and_only_once():
    bench = Bench(needs_fetch=True)
    assert bench.start() == [Fetch()]
    assert bench.state is State.DOWNLOADING
    (launch,) = bench.says(Fetched(Path("/cache/model")))
    assert launch.spec.model_path == Path("/cache/model")
    bench.says(Exited(1, 1))
    bench.says(Ended(1, KILLED, None))
    (again,) = bench.after(10)
    assert isinstance(again, Launch)


def test_a_download_that_broke_is_tried_again_and_one_we_may_not_have_is_not():
    bench = Bench(needs_fetch=True)
    bench.start()
    bench.says(FetchFailed(Cause(CauseKind.DOWNLOAD_FAILED, "lost", "wait")))
    assert bench.state is State.BACKING_OFF
    assert bench.after(10) == [Fetch()]
    bench.says(FetchFailed(Cause(CauseKind.GATED_MODEL, "gated", "token")))
    assert bench.state is State.FAILED
    assert bench.machine.due_at() == math.inf


def test_a_full_disk_is_not_filled_again():
    bench = Bench(needs_fetch=True)
    bench.start()
    bench.says(FetchFailed(Cause(CauseKind.DISK_FULL, "full", "free some")))
    assert bench.state is State.FAILED


def test_stopping_a_download_cancels_it():
    bench = Bench(needs_fetch=True)
    bench.start()
    assert bench.machine.stop(bench.now) == [CancelFetch()]
    assert bench.state is State.STOPPED
    assert bench.says(Fetched(Path("/x"))) == []


def test_memory_that_is_held_is_looked_at_before_every_start():
    bench = Bench()
    bench.make_ready()
    bench.says(Exited(1, 1))
    bench.says(Ended(1, KILLED, "GPU 0 is held by pid 7"))
    assert bench.after(10) == [CheckRelease()]
    assert bench.after(10) == []
    bench.says(Released("GPU 0 is held by pid 7"))
    assert bench.machine.cause.kind is CauseKind.MEMORY_HELD
    assert bench.after(10) == [CheckRelease()]
    assert bench.says(Released(None)) == [Launch(2, SPEC)]


def test_a_launch_that_fails_is_tried_again():
    bench = Bench()
    bench.start()
    bench.says(LaunchFailed(1, Cause(CauseKind.UNKNOWN, "no more processes", "wait")))
    assert bench.state is State.BACKING_OFF
    assert bench.after(10) == [Launch(2, SPEC)]


@pytest.mark.parametrize("grace_s", [None, 1.0])
def test_stopping_waits_for_the_word_to_end(grace_s):
    bench = Bench()
    bench.make_ready()
    assert bench.machine.stop(bench.now) == []
    assert bench.state is State.STOPPING
    assert bench.after(1000) == []
    assert bench.machine.end(grace_s) == [EndGroup(1, grace_s or Timing().term_grace_s)]
    assert bench.machine.end() == []
    bench.says(Exited(1, 0))
    bench.says(Ended(1, KILLED, None))
    assert bench.state is State.STOPPED


def test_an_engine_that_waits_for_its_next_start_stops_at_once():
    bench = Bench()
    bench.start()
    bench.says(Exited(1, 1))
    bench.says(Ended(1, KILLED, None))
    bench.machine.stop(bench.now)
    assert bench.state is State.STOPPED
    assert bench.after(1000) == []


def test_stopping_while_its_group_is_being_ended_ends_stopped():
    bench = Bench()
    bench.make_ready()
    bench.says(Exited(1, 1))
    bench.machine.stop(bench.now)
    assert bench.machine.end() == []
    bench.says(Ended(1, KILLED, None))
    assert bench.state is State.STOPPED


def test_starting_what_runs_changes_nothing():
    bench = Bench()
    bench.make_ready()
    assert bench.start() == []
    assert bench.state is State.READY


# --- whatever happens ------------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("wait"), st.floats(0, 400)),
    st.tuples(st.just("look"), st.booleans(), st.sampled_from([True, False, None]), st.integers(0, 3)),
    st.tuples(st.just("canary"), st.sampled_from(list(CanaryResult))),
    st.tuples(st.just("exit"), st.sampled_from([0, 1, -9])),
    st.tuples(st.just("ended"), st.sampled_from(list(CauseKind)), st.sampled_from([None, "held"])),
    st.tuples(st.just("released"), st.sampled_from([None, "held"])),
    st.tuples(st.just("job"), st.booleans()),
    st.tuples(st.sampled_from(["start", "stop", "end"])),
)


@given(st.lists(STEP, max_size=60))
def test_one_process_at_a_time_whatever_happens_in_whatever_order(steps):
    bench = Bench()
    alive: set[int] = set()
    machine = bench.machine

    def take(actions):
        for action in actions:
            if isinstance(action, Launch):
                assert not alive, "a second process beside a first"
                alive.add(action.run)
            if isinstance(action, EndGroup):
                assert action.run in alive

    for step in steps:
        match step:
            case ("wait", seconds):
                take(bench.after(seconds))
            case ("look", healthy, owns, stopped):
                take(bench.says(Looked(bench.run, ProbeResult(healthy, healthy, (1.0,)), owns, stopped)))
            case ("canary", result):
                take(bench.says(CanaryBack(bench.run, result)))
            case ("exit", code):
                take(bench.says(Exited(bench.run, code)))
            case ("ended", kind, held):
                if machine._run is not None and machine._run.ending:
                    alive.discard(bench.run)
                    take(bench.says(Ended(bench.run, Cause(kind, "x", "y"), held)))
            case ("released", held):
                take(bench.says(Released(held)))
            case ("job", ok):
                if machine.vitality is not None:
                    machine.vitality.job_started(bench.now)
                    machine.vitality.job_finished(bench.now, ok=ok)
            case ("start",):
                take(bench.start())
            case ("stop",):
                take(machine.stop(bench.now))
            case ("end",):
                take(machine.end())
        assert (machine.vitality is not None) == bool(alive)
        if machine.state is State.BACKING_OFF and machine._run is None:
            assert machine.due_at() < math.inf or machine._checking, "nothing would ever start it again"
        if machine.state in (State.READY, State.STALLED, State.STARTING):
            assert alive
        ticks = 0
        while machine.due_at() <= bench.now:  # its owner would go round without ever waiting
            take(machine.tick(bench.now))
            assert (ticks := ticks + 1) < 4, "what is due is never done"


def test_an_engine_whose_turn_it_is_not_waits_and_starts_once_it_is():
    turn = [False]
    bench = Bench()
    bench.machine.may_launch = lambda: turn[0]
    assert bench.machine.start(bench.now) == []
    assert (bench.state, bench.machine.waits, bench.machine.starts) == (State.BACKING_OFF, True, 0)
    assert bench.after(60) == []
    turn[0] = True
    assert bench.after(60) == [Launch(1, SPEC)]
    assert not bench.machine.waits
