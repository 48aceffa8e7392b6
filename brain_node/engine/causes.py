"""Why an engine ended, as a typed record with the lines that show it.

A cause is read from the last lines of the log and the exit code. The true cause stands mid-log, the last line is
generic ("initialization failed"), and exit code 0 proves nothing: an engine whose core was killed exits with 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from brain_node.contract.messages import printable


class CauseKind(StrEnum):
    """What is known to end an engine or to keep it from starting."""

    OUT_OF_MEMORY = "out_of_memory"  # memory of the card or machine does not suffice
    CONTEXT_ABOVE_KV = "context_above_kv_cache"  # one request of full length does not fit the KV cache
    PORT_TAKEN = "port_taken"  # somebody else listens on the port
    GATED_MODEL = "gated_model"  # the hub wants a token, or an accepted licence
    MISSING_MODEL = "missing_model"  # no such weights here or at the hub (or private: it looks the same)
    UNSUPPORTED_MODEL = "unsupported_model"  # the engine or the card cannot run this kind of model
    BAD_FLAG = "bad_flag"  # the engine refused its command line
    DISK_FULL = "disk_full"
    DRIVER_MISMATCH = "driver_mismatch"  # driver and CUDA build do not fit, or no driver
    TENSOR_PARALLEL = "tensor_parallel"  # the number of cards does not divide the model
    BROKEN_INSTALL = "broken_install"  # the engine's environment lacks something
    KILLED = "killed"  # a signal from outside ended its root
    ENGINE_CORE_DIED = "engine_core_died"  # a child died and the root followed, often with exit code 0
    HUNG = "hung"  # alive, but no longer making progress
    START_TIMEOUT = "start_timeout"  # not ready within the start limit
    MEMORY_HELD = "memory_held"  # it ended, but its memory has not come back
    DOWNLOAD_FAILED = "download_failed"  # the network or the hub, worth another try
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, ready to be shown, logged and decided on."""

    kind: CauseKind
    message: str
    """One line for people."""
    advice: str
    """The next step for the operator."""
    evidence: tuple[str, ...] = ()
    """The log lines that show it, first the telling one."""
    figures: dict[str, float] = field(default_factory=dict)
    """Numbers read from the evidence; their names carry the unit."""

    def __post_init__(self) -> None:
        """It may hold words of a hub, or of whoever answers on an engine's port: one line, and not without end."""
        object.__setattr__(self, "message", printable(self.message)[:_LINE_LENGTH])
        object.__setattr__(self, "evidence", tuple(map(printable, self.evidence)))


@dataclass(frozen=True, slots=True)
class _Pattern:
    kind: CauseKind
    regex: re.Pattern[str]
    message: str
    advice: str


_HELD_NOTE: Final = "lower the memory share, close other programs on the card, or choose a smaller model"

# Order matters: the first pattern that finds a line wins, so the narrow ones stand before the wide ones.
_PATTERNS: Final = tuple(
    _Pattern(kind, re.compile(regex, re.IGNORECASE), message, advice)
    for kind, regex, message, advice in (
        (
            CauseKind.CONTEXT_ABOVE_KV,
            r"max seq len \(?(?P<asked_tokens>\d+)\)?,.*?(?P<needed_gib>[\d.]+) GiB KV.*?available KV cache"
            r" memory \((?P<available_gib>[\d.]+) GiB\)(?:.*?maximum model length is (?P<fits_tokens>\d+))?",
            "the context of {asked_tokens} tokens does not fit the KV cache",
            "set a smaller context for this model, or give it more memory",
        ),
        (
            CauseKind.CONTEXT_ABOVE_KV,
            r"(?:max seq len|length|max_model_len)\D{0,20}(?P<asked_tokens>\d{3,})\D.*?KV.?cache\D*?(?P<fits_tokens>\d{3,})"
            r"|length (?P<asked2_tokens>\d+) exceeds (?:the )?cache capacity (?P<fits2_tokens>\d+)",
            "the context of {asked_tokens} tokens is above the {fits_tokens} that the KV cache holds",
            "set a smaller context for this model, or give it more memory",
        ),
        (
            CauseKind.CONTEXT_ABOVE_KV,
            r"max_model_len \(?(?P<asked_tokens>\d+)\)? is greater than the derived max_model_len"
            r".*?(?:=|is )(?P<fits_tokens>\d+)",
            "the context of {asked_tokens} tokens is above the {fits_tokens} the model was made for",
            "set a smaller context for this model",
        ),
        (
            CauseKind.TENSOR_PARALLEL,
            r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<cards>\d+)\)"
            r"|must be divisible by tensor.?parallel|tensor.?parallel size \(?\d+\)? .*(?:greater|larger|exceeds)",
            "this model cannot be split over that number of cards",
            "give it a number of cards that divides its attention heads",
        ),
        (
            CauseKind.PORT_TAKEN,
            r"address already in use|errno 98\b|EADDRINUSE",
            "the port was taken by another program",
            "another port is tried by itself",
        ),
        (
            CauseKind.GATED_MODEL,
            r"gated repo|GatedRepoError|awaiting a review|not in the authorized list|access to model .* is restricted"
            r"|403 (?:Client Error|Forbidden)|401 Client Error.*gated",
            "the hub does not give this model to us: it wants a token and an accepted licence",
            "accept the licence on the model's page and put a token into HF_TOKEN",
        ),
        (
            CauseKind.MISSING_MODEL,
            r"RepositoryNotFoundError|RevisionNotFoundError|LocalEntryNotFoundError|HFValidationError"
            r"|401 Client Error|404 Client Error|is not a local folder|no such file or directory:? .*config\.json"
            r"|Invalid repository ID or local directory|Cannot find any model weights|does not appear to have a file named"
            r"|repository not found",
            "the model's files were not found; a gated or private repository looks the same without a token",
            "check the name, and put a token into HF_TOKEN if the model is gated or private",
        ),
        (
            CauseKind.OUT_OF_MEMORY,
            r"Free memory on device .*\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\).*"
            r"utilization \((?P<share>[\d.]+), (?P<wanted_gib>[\d.]+) GiB\)",
            "{free_gib} of {total_gib} GiB of the card are free, {wanted_gib} were wanted",
            _HELD_NOTE,
        ),
        (
            CauseKind.OUT_OF_MEMORY,
            r"Available memory on .*\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\).*less than requested"
            r".*\((?P<wanted_gib>[\d.]+) GiB\)",
            "{free_gib} of {total_gib} GiB are free, {wanted_gib} were wanted",
            _HELD_NOTE,
        ),
        (
            CauseKind.OUT_OF_MEMORY,
            r"out of memory|No available memory for the cache blocks|Cannot allocate memory|MemoryError|bad_alloc"
            r"|can't allocate memory|not enough memory|insufficient memory|NVML_ERROR_MEMORY|ENOMEM",
            "memory does not suffice",
            _HELD_NOTE,
        ),
        (
            CauseKind.DISK_FULL,
            r"no space left on device|errno 28\b|disk quota exceeded",
            "a disk is full",
            "free some space where the data folder, the model cache and the temporary folder lie",
        ),
        (
            CauseKind.DRIVER_MISMATCH,
            r"NVIDIA driver on your system is too old|driver version is insufficient|CUDA driver .*(?:mismatch|too old)"
            r"|Driver/library version mismatch|forward compatibility was attempted|no kernel image is available"
            r"|provided PTX was compiled with an unsupported toolchain|No CUDA GPUs are available|no NVIDIA driver"
            r"|Failed to infer device type|libcuda\.so.*cannot open|cuInit|CUDA initialization",
            "the engine cannot use the NVIDIA driver",
            "update the driver (after an update: reboot), then run brain-node doctor",
        ),
        (
            CauseKind.BAD_FLAG,
            r"error: (?:unrecognized arguments?|argument .*|the following arguments|ambiguous option)",
            "the engine refused its command line",
            "correct the catalog entry, or install the engine version it was written for",
        ),
        (
            CauseKind.UNSUPPORTED_MODEL,
            r"Model architectures? .* (?:are|is) not supported|does not recognize this architecture"
            r"|not support(?:ed)? .*compute capability|Bfloat16 is only supported on GPUs"
            r"|quantization (?:method )?.* not supported|Unknown quantization",
            "the engine or the card cannot run this model",
            "choose another model, or another engine version",
        ),
        (
            CauseKind.BROKEN_INSTALL,
            r"^error: cannot run /|^(?:ModuleNotFoundError|ImportError):|No module named |undefined symbol|GLIBC\w* .*not found",
            "the engine's environment is broken",
            "run: brain-node engine install --reinstall",
        ),
        (
            CauseKind.ENGINE_CORE_DIED,
            r"EngineCore .*died|EngineDeadError|Engine core proc \S+ died|engine core .* died unexpectedly"
            r"|WorkerProc .* died|died unexpectedly",
            "a process of the engine died, and the engine with it",
            "it is started again; if this repeats, look into the engine's log and the kernel's (dmesg)",
        ),
    )
)

_PREFIX: Final = re.compile(r"^(?:\(\S+(?: \S+)* pid=\d+\) )?(?:(?:ERROR|CRITICAL) \d\d-\d\d [\d:]+ \[[^\]]+\] ?)?")
_WARNING: Final = re.compile(r"^(?:\(\S+(?: \S+)* pid=\d+\) )?(?:WARNING|INFO|DEBUG)\b")
_ERROR_LINE: Final = re.compile(
    r"\b(?:[A-Za-z_.]*(?:Error|Exception)|error|fatal|CRITICAL|Killed|Segmentation fault)\b[:\s]"
)
_FRAME: Final = re.compile(
    r'^(?:File "|raise |return |await |Traceback |[\^~\s]*$|During handling|The above exception)'
)
_LOOKED_AT: Final = 700
"""Characters of a line that are looked at. Telling lines are shorter; a search takes the square of a line's length and
more, and with the last lines of an engine that wrote much without a line end the agent stood still for minutes."""
_EVIDENCE_LINES: Final = 4
_LINE_LENGTH: Final = 400


def classify(lines: Sequence[str], code: int | None, *, was_ready: bool = False) -> Cause:
    """Name the cause of an engine's end.

    Args:
        lines: its last log lines, oldest first.
        code: its exit code, minus the signal's number when a signal ended it; `None` when it is not known.
        was_ready: it had served before; what its log says of the start then says nothing of the end.
    """
    begun = (line[:_LOOKED_AT] for line in lines)
    said = [bare for line in begun if not _WARNING.match(line) and not _FRAME.match(bare := _bare(line))]
    if code is not None and code < 0:
        return _signalled(-code, said)
    for pattern in _PATTERNS:
        for position, line in enumerate(said):
            if match := pattern.regex.search(line):
                if was_ready and pattern.kind in _START_ONLY:
                    break
                return _found(pattern, match, said[position:])
    return _unknown(said, code)


_START_ONLY: Final = frozenset(
    {CauseKind.CONTEXT_ABOVE_KV, CauseKind.PORT_TAKEN, CauseKind.BAD_FLAG, CauseKind.TENSOR_PARALLEL}
)


def first_error_line(lines: Sequence[str]) -> str | None:
    """The first line that reports an error, its log prefix taken off, or `None`."""
    for line in lines:
        if not _WARNING.match(line) and _ERROR_LINE.search(_bare(line)):
            return _bare(line)
    return None


def _found(pattern: _Pattern, match: re.Match[str], rest: Sequence[str]) -> Cause:
    figures: dict[str, float] = {}
    for name, value in match.groupdict().items():
        if value is not None:
            figures[name.replace("2_", "_")] = float(value)
    shown = {name: f"{value:g}" for name, value in figures.items()}
    try:
        message = pattern.message.format_map(shown)
    except KeyError:
        message = re.sub(r" of \{\w+\} tokens| the \{\w+\} that", "", pattern.message)
    return Cause(pattern.kind, message, pattern.advice, _evidence(rest), figures)


def _signalled(number: int, said: Sequence[str]) -> Cause:
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM", 7: "SIGBUS", 4: "SIGILL"}
    name = names.get(number, f"signal {number}")
    if number in (6, 7, 11, 4):
        # A crash, not a kill: the log may say why.
        for pattern in _PATTERNS:
            if pattern.kind in (CauseKind.OUT_OF_MEMORY, CauseKind.DRIVER_MISMATCH, CauseKind.DISK_FULL):
                for position, line in enumerate(said):
                    if match := pattern.regex.search(line):
                        return _found(pattern, match, said[position:])
    advice = "if nobody did this by hand, look for the kernel's out-of-memory killer: dmesg | grep -i killed"
    return Cause(CauseKind.KILLED, f"the engine was ended by {name}", advice, _evidence(said[-_EVIDENCE_LINES:]))


def _unknown(said: Sequence[str], code: int | None) -> Cause:
    first = first_error_line(said)
    ended = "ended" if code is None else f"exited with code {code}"
    message = f"the engine {ended}" + (f": {first}" if first else " and said nothing about it")
    rest = said[said.index(first) :] if first else said[-_EVIDENCE_LINES:]
    return Cause(CauseKind.UNKNOWN, message, "look into the engine's log: brain-node logs", _evidence(rest))


def _evidence(rest: Sequence[str]) -> tuple[str, ...]:
    lines = [line[:_LINE_LENGTH] for line in rest if line.strip()]
    return tuple(lines[:_EVIDENCE_LINES])


def _bare(line: str) -> str:
    return _PREFIX.sub("", line, count=1).strip()
