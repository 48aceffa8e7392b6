"""What follows from a cause: try again later, try again changed, or stop and tell the operator. Pure."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.spec import EngineSpec


class Verdict(StrEnum):
    """The three ways on."""

    RETRY = "retry"  # the same again, after a back-off
    CHANGED = "changed"  # once more with what the cause names put right
    STOP = "stop"  # nothing the node can do by itself helps


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do after an engine ended."""

    verdict: Verdict
    spec: EngineSpec
    """What to launch next; the old one unless something was changed."""
    note: str = ""
    """What was changed, or why it stops."""
    soon: bool = False
    """The fault is over by itself (another port): no back-off."""


PORT_TRIES: Final = 5
MEMORY_TRIES: Final = 3
_MEMORY_MARGIN_GIB: Final = 0.3
_CONTEXT_STEP: Final = 256

_STOP: Final = frozenset(
    {
        CauseKind.GATED_MODEL,
        CauseKind.MISSING_MODEL,
        CauseKind.UNSUPPORTED_MODEL,
        CauseKind.BAD_FLAG,
        CauseKind.DISK_FULL,
        CauseKind.DRIVER_MISMATCH,
        CauseKind.TENSOR_PARALLEL,
        CauseKind.BROKEN_INSTALL,
    }
)


def decide(cause: Cause, spec: EngineSpec, failures: Counter[CauseKind], *, was_ready: bool) -> Decision:
    """Decide what follows.

    Args:
        cause: why the engine ended.
        spec: what it was started as.
        failures: how often each kind ended it since it last ran well, this time included.
        was_ready: whether it had served before it ended; a start that failed tells more about its arguments.
    """
    kind, count = cause.kind, failures[cause.kind]
    if kind in _STOP and not (was_ready and kind is not CauseKind.DISK_FULL):
        return Decision(Verdict.STOP, spec, cause.advice)
    if kind is CauseKind.PORT_TAKEN:
        if count > PORT_TRIES:
            return Decision(Verdict.RETRY, spec, "ports keep being taken")
        return Decision(Verdict.CHANGED, spec, "another port", soon=True)
    if kind is CauseKind.CONTEXT_ABOVE_KV:
        return _less_context(cause, spec, count)
    if kind is CauseKind.OUT_OF_MEMORY and not was_ready:
        return _less_memory(cause, spec, count)
    return Decision(Verdict.RETRY, spec)


def _less_context(cause: Cause, spec: EngineSpec, count: int) -> Decision:
    fits = cause.figures.get("fits_tokens")
    asked = cause.figures.get("asked_tokens") or spec.context
    if fits is not None and count == 1:
        # A little under the figure: it is an estimate, and blocks are whole.
        context = int(fits) // _CONTEXT_STEP * _CONTEXT_STEP
        if context >= spec.min_context and (asked is None or context < asked):
            note = f"context {context} instead of {asked:g}" if asked else f"context {context}"
            return Decision(Verdict.CHANGED, spec.with_changes(context=context), note, soon=True)
    return Decision(
        Verdict.STOP,
        spec,
        f"set --max-model-len for {spec.model_id} to at most {fits:g}" if fits is not None else cause.advice,
    )


def _less_memory(cause: Cause, spec: EngineSpec, count: int) -> Decision:
    free, total = cause.figures.get("free_gib"), cause.figures.get("total_gib")
    if count == 1 and spec.memory_fraction is not None and free is not None and total:
        fraction = (free - _MEMORY_MARGIN_GIB) / total
        if 0.1 < fraction < spec.memory_fraction:
            note = f"memory share {fraction:.2f} instead of {spec.memory_fraction:.2f}"
            return Decision(Verdict.CHANGED, spec.with_changes(memory_fraction=round(fraction, 4)), note, soon=True)
    if count > MEMORY_TRIES:
        return Decision(Verdict.STOP, spec, cause.advice)
    return Decision(Verdict.RETRY, spec)
