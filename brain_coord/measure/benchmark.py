"""The join benchmark's rules: what is asked, what counts, and which compute class follows. Pure but for the prompt."""

import secrets
import zlib
from typing import Any, Final

from brain_coord.measure.density import PROSE_BYTES_PER_TOKEN
from brain_coord.measure.words import NOUNS

MAX_AGE_S: Final = 24 * 3600.0
"""A benchmark older than this is taken again."""

AGE_SPREAD: Final = 0.1
"""By up to this share later, by node, so that a fleet that joined together does not come due together."""

WARM_UP_TOKENS: Final = 8
LENGTHS: Final = (96, 384, 1536)
"""Lengths of the measured answer in tokens. Runs of one length compare; where one takes less than `LONG_ENOUGH_S` to
write, what could be hidden in the wait before it would count, so the next longer one is taken instead."""

LONG_ENOUGH_S: Final = 1.0

TIMEOUT_S: Final = 180.0

_CLASSES: Final = ((12.0, "EDGE"), (40.0, "CONSUMER"), (90.0, "PRO"))


def compute_class(tok_s: float, *, mock: bool) -> str | None:
    """EDGE < 12 ≤ CONSUMER < 40 ≤ PRO < 90 ≤ DATACENTER, in tokens per second; a mock is never classed."""
    if mock:
        return None
    return next((name for limit, name in _CLASSES if tok_s < limit), "DATACENTER")


def benchmark_prompt() -> str:
    """A prompt that was never sent before, so that no answer can have been stored."""
    words = ", ".join(secrets.choice(NOUNS) for _ in range(12))
    return f"Write a long story in which these words appear in this order: {words}."


def benchmark_body(model: str, prompt: str, tokens: int, *, ignore_eos: bool) -> dict[str, Any]:
    """The request for an answer of a fixed length."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0.7,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ignore_eos:
        body["ignore_eos"] = True
    return body


def is_due(
    measured_s: float | None,
    fingerprint: str | None,
    wanted: str,
    wall_s: float,
    *,
    node_id: str = "",
    returned_s: float | None = None,
) -> bool:
    """Whether a model needs a benchmark.

    Args:
        measured_s: when the latest was taken, seconds since 1970; `None` without one.
        fingerprint: engine, hardware and model it was taken of.
        wanted: the same as they are now.
        wall_s: seconds since 1970.
        node_id: spreads the daily ones.
        returned_s: when the node came back from a long absence.
    """
    if measured_s is None or fingerprint != wanted:
        return True
    if returned_s is not None and measured_s < returned_s:
        return True
    spread = zlib.crc32(node_id.encode()) / 2**32 * AGE_SPREAD
    return wall_s - measured_s > MAX_AGE_S * (1 + spread)


def measured_tokens(reported: int | None, asked: int, text_bytes: int) -> int:
    """The tokens of a benchmark answer: never more than we asked for, nor than its prose can hold."""
    holds = int(text_bytes / PROSE_BYTES_PER_TOKEN)
    return min(asked, text_bytes // 4 if reported is None else reported, holds)
