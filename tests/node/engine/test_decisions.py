"""What follows from a cause."""

from collections import Counter
from pathlib import Path

import pytest

from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.decisions import PORT_TRIES, Verdict, decide
from brain_node.engine.environments import Flavour
from brain_node.engine.spec import EngineSpec

SPEC = EngineSpec(
    "test/model", Path("/srv/model"), ("vllm",), Flavour.CUDA, context=32768, memory_fraction=0.9, min_context=4096
)


def cause(kind: CauseKind, **figures: float) -> Cause:
    return Cause(kind, "it ended", "do something", (), figures)


def decide_after(what: Cause, times: int = 1, was_ready: bool = False, spec: EngineSpec = SPEC):
    return decide(what, spec, Counter({what.kind: times}), was_ready=was_ready)


@pytest.mark.parametrize(
    "kind",
    [
        CauseKind.GATED_MODEL,
        CauseKind.MISSING_MODEL,
        CauseKind.UNSUPPORTED_MODEL,
        CauseKind.BAD_FLAG,
        CauseKind.DISK_FULL,
        CauseKind.DRIVER_MISMATCH,
        CauseKind.TENSOR_PARALLEL,
        CauseKind.BROKEN_INSTALL,
    ],
)
def test_faults_that_only_a_person_can_mend_stop_at_once(kind):
    decision = decide_after(cause(kind))
    assert decision.verdict is Verdict.STOP
    assert decision.note == "do something"


@pytest.mark.parametrize(
    "kind",
    [
        CauseKind.KILLED,
        CauseKind.ENGINE_CORE_DIED,
        CauseKind.HUNG,
        CauseKind.START_TIMEOUT,
        CauseKind.DOWNLOAD_FAILED,
        CauseKind.UNKNOWN,
    ],
)
def test_faults_that_may_pass_are_tried_again_for_ever(kind):
    for times in (1, 10, 1000):
        decision = decide_after(cause(kind), times)
        assert (decision.verdict, decision.spec) == (Verdict.RETRY, SPEC)


def test_another_port_is_tried_soon_and_not_for_ever_soon():
    assert decide_after(cause(CauseKind.PORT_TAKEN), PORT_TRIES).soon
    assert not decide_after(cause(CauseKind.PORT_TAKEN), PORT_TRIES + 1).soon


@pytest.mark.case("B-03")
def test_a_context_is_lowered_once_and_only_to_what_is_still_of_use():
    lowered = decide_after(cause(CauseKind.CONTEXT_ABOVE_KV, asked_tokens=32768, fits_tokens=7344))
    assert lowered.verdict is Verdict.CHANGED
    assert lowered.spec.context == 7168
    again = decide_after(cause(CauseKind.CONTEXT_ABOVE_KV, asked_tokens=7168, fits_tokens=7000), 2, spec=lowered.spec)
    assert again.verdict is Verdict.STOP
    too_small = decide_after(cause(CauseKind.CONTEXT_ABOVE_KV, asked_tokens=32768, fits_tokens=3000))
    assert too_small.verdict is Verdict.STOP
    assert "3000" in too_small.note
    assert decide_after(cause(CauseKind.CONTEXT_ABOVE_KV)).verdict is Verdict.STOP


@pytest.mark.case("B-10")
def test_a_memory_share_is_lowered_to_what_is_free():
    decision = decide_after(cause(CauseKind.OUT_OF_MEMORY, free_gib=19.77, total_gib=22.05, wanted_gib=19.84))
    assert decision.verdict is Verdict.CHANGED
    assert decision.spec.memory_fraction == pytest.approx((19.77 - 0.3) / 22.05, abs=1e-3)
    assert decision.spec.memory_fraction < 0.9


def test_memory_that_never_suffices_stops_after_a_few_tries():
    verdicts = [decide_after(cause(CauseKind.OUT_OF_MEMORY), times).verdict for times in (1, 2, 3, 4)]
    assert verdicts == [Verdict.RETRY, Verdict.RETRY, Verdict.RETRY, Verdict.STOP]


def test_an_engine_that_served_for_long_is_started_again_whatever_memory_it_ran_out_of():
    assert decide_after(cause(CauseKind.OUT_OF_MEMORY), 9, was_ready=True).verdict is Verdict.RETRY
