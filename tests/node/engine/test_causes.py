"""Causes, read from what a real engine wrote (logs/, shortened to its last 200 lines) and from lines seen in the field."""

import time
from pathlib import Path

import pytest

from brain_node.engine.causes import Cause, CauseKind, classify, first_error_line

LOGS = Path(__file__).parent / "logs"


def log(name: str) -> list[str]:
    return (LOGS / f"{name}.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "code", "kind", "telling"),
    [
        ("context", 1, CauseKind.CONTEXT_ABOVE_KV, "max seq len (8192)"),
        ("toolong", 1, CauseKind.CONTEXT_ABOVE_KV, "greater than the derived max_model_len"),
        ("tp", 1, CauseKind.TENSOR_PARALLEL, "must be divisible by tensor parallel size (3)"),
        ("port", 1, CauseKind.PORT_TAKEN, "Address already in use"),
        ("flag", 2, CauseKind.BAD_FLAG, "--no-such-flag"),
        ("missing", 1, CauseKind.MISSING_MODEL, "/srv/models/nothere"),
        ("hubmissing", 1, CauseKind.MISSING_MODEL, "Cannot find an appropriate cached snapshot"),
        ("oom", 1, CauseKind.OUT_OF_MEMORY, "less than requested memory"),
        ("nogpu", 1, CauseKind.DRIVER_MISMATCH, "Failed to infer device type"),
        ("corekill", 0, CauseKind.ENGINE_CORE_DIED, "EngineDeadError"),
    ],
)
def test_a_real_engines_log_names_the_cause(name, code, kind, telling):
    cause = classify(log(name), code)
    assert cause.kind is kind
    assert telling in cause.evidence[0]
    assert cause.advice
    assert "\n" not in cause.message


def test_figures_are_read_from_the_evidence():
    cause = classify(log("context"), 1)
    assert cause.figures == {"asked_tokens": 8192, "needed_gib": 0.18, "available_gib": 0.06, "fits_tokens": 2688}
    assert classify(log("oom"), 1).figures["wanted_gib"] == 900


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.", CauseKind.OUT_OF_MEMORY),
        ("ValueError: No available memory for the cache blocks. Try increasing", CauseKind.OUT_OF_MEMORY),
        ("OSError: [Errno 28] No space left on device", CauseKind.DISK_FULL),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", CauseKind.DRIVER_MISMATCH),
        ("CUDA error: no kernel image is available for execution on the device", CauseKind.DRIVER_MISMATCH),
        ("RuntimeError: Failed to infer device type", CauseKind.DRIVER_MISMATCH),
        ("GatedRepoError: 403 Client Error.", CauseKind.GATED_MODEL),
        ("OSError: You are trying to access a gated repo.", CauseKind.GATED_MODEL),
        ("RepositoryNotFoundError: 401 Client Error.", CauseKind.MISSING_MODEL),
        ("ValueError: Model architectures ['Foo'] are not supported for now.", CauseKind.UNSUPPORTED_MODEL),
        ("ValueError: Bfloat16 is only supported on GPUs with compute capability", CauseKind.UNSUPPORTED_MODEL),
        ("ModuleNotFoundError: No module named 'vllm'", CauseKind.BROKEN_INSTALL),
        ("EngineCore_0 died unexpectedly", CauseKind.ENGINE_CORE_DIED),
        ("something quite new", CauseKind.UNKNOWN),
    ],
)
def test_lines_seen_in_the_field(line, kind):
    lines = ["INFO 11-29 loading", f"(EngineCore pid=7) ERROR 11-29 22:01:17 [core.py:1510] {line}", "exiting"]
    assert classify(lines, 1).kind is kind


@pytest.mark.case("B-10")
def test_memory_that_does_not_suffice_is_told_with_all_its_numbers():
    line = (
        "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    cause = classify([line], 1)
    assert cause.kind is CauseKind.OUT_OF_MEMORY
    assert cause.message == "19.77 of 22.05 GiB of the card are free, 19.84 were wanted"


def test_a_warning_about_errors_is_no_error():
    warning = log("missing")[8:]
    assert any("OSError: [Errno 24]" in line for line in warning), "the fixture shows what every start logs"
    assert classify(["(APIServer pid=1) WARNING 11-29 x: out of memory could follow, OSError: [Errno 28]"], 1).kind is (
        CauseKind.UNKNOWN
    )


def test_the_cause_stands_before_the_generic_last_line():
    lines = [*log("context"), "RuntimeError: Engine core initialization failed. See root cause above."]
    assert classify(lines, 1).kind is CauseKind.CONTEXT_ABOVE_KV


def test_an_unknown_end_carries_its_first_error_line():
    cause = classify(["INFO fine", "SomeOddError: blue smoke", "RuntimeError: initialization failed"], 1)
    assert cause.kind is CauseKind.UNKNOWN
    assert "SomeOddError: blue smoke" in cause.message
    assert cause.evidence[0] == "SomeOddError: blue smoke"


def test_a_silent_end_says_so():
    assert classify([], 0).message == "the engine exited with code 0 and said nothing about it"
    assert classify([], None).kind is CauseKind.UNKNOWN


def test_a_signal_is_named_whatever_the_log_says():
    cause = classify(["EngineDeadError: EngineCore encountered an issue."], -9)
    assert cause.kind is CauseKind.KILLED
    assert "SIGKILL" in cause.message
    assert "dmesg" in cause.advice


def test_an_abort_is_explained_by_the_log_when_it_can_be():
    assert classify(["terminate called after throwing an instance of 'std::bad_alloc'"], -6).kind is (
        CauseKind.OUT_OF_MEMORY
    )


def test_what_a_log_says_of_the_start_does_not_explain_the_end_of_one_that_served():
    lines = ["OSError: [Errno 98] Address already in use", "EngineDeadError: EngineCore encountered an issue."]
    assert classify(lines, 1, was_ready=True).kind is CauseKind.ENGINE_CORE_DIED
    assert classify(lines, 1).kind is CauseKind.PORT_TAKEN


def test_first_error_line_skips_what_is_no_error():
    assert first_error_line(["all well", "(Worker pid=1) ERROR 11-29 22:01:17 [a.py:1] ValueError: no"]) == (
        "ValueError: no"
    )
    assert first_error_line(["all well"]) is None


def test_lines_without_an_end_take_no_longer_than_long_ones():
    """The agent reads them between two heartbeats, on the same thread."""

    def took_s(length: int) -> float:
        lines = [("length 1234 " * 1000)[:length]] * 20
        began = time.process_time()
        assert classify(lines, 1).kind is CauseKind.UNKNOWN
        return time.process_time() - began

    assert took_s(8192) < 3 * took_s(1000)


def test_evidence_is_short():
    cause = classify(["ValueError: out of memory " + "x" * 5000, *["more"] * 50], 1)
    assert len(cause.evidence) == 4
    assert max(map(len, cause.evidence)) <= 400


def test_a_strangers_words_are_one_line_and_not_without_end():
    cause = Cause(CauseKind.PORT_TAKEN, "what answers lists \x1b[2J\n" + "x" * 5000, "", ("evil \x1b[2J",))
    assert cause.message.startswith("what answers lists  [2J x")
    assert len(cause.message) == 400
    assert cause.evidence == ("evil  [2J",)
