"""The join benchmark's rules: what is asked, what counts, and which compute class follows. Pure but for the prompt."""

import secrets
from dataclasses import dataclass
from typing import Any, Final

MAX_AGE_S: Final = 24 * 3600.0
"""A benchmark older than this is taken again."""

WARM_UP_TOKENS: Final = 8
TOKENS: Final = 96
"""Fixed length of the measured answer, so that runs compare."""

TIMEOUT_S: Final = 180.0

_CLASSES: Final = ((12.0, "EDGE"), (40.0, "CONSUMER"), (90.0, "PRO"))

_WORDS: Final = [
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbor",
    "island",
    "juniper",
    "kettle",
    "lantern",
    "meadow",
    "nectar",
    "orchard",
    "pebble",
    "quarry",
    "ripple",
    "saddle",
    "timber",
    "umber",
    "valley",
    "willow",
    "yarrow",
    "zephyr",
    "anchor",
    "bridge",
    "canyon",
    "drift",
    "eagle",
    "falcon",
    "glacier",
    "hollow",
    "iris",
    "jasper",
    "kelp",
    "lagoon",
    "marble",
    "needle",
    "opal",
    "prairie",
    "quartz",
    "raven",
    "summit",
    "thistle",
    "urchin",
    "violet",
    "wharf",
    "yonder",
]


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """What one measured run gave."""

    tok_s: float
    first_output_ms: float


def compute_class(tok_s: float, *, mock: bool) -> str | None:
    """EDGE < 12 ≤ CONSUMER < 40 ≤ PRO < 90 ≤ DATACENTER, in tokens per second; a mock is never classed."""
    if mock:
        return None
    return next((name for limit, name in _CLASSES if tok_s < limit), "DATACENTER")


def benchmark_body(model: str, tokens: int, *, ignore_eos: bool) -> dict[str, Any]:
    """A request with a prompt that was never sent before, so that no answer can have been stored."""
    words = ", ".join(secrets.choice(_WORDS) for _ in range(12))
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "user", "content": f"Write a long story in which these words appear in this order: {words}."}
        ],
        "max_tokens": tokens,
        "temperature": 0.7,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ignore_eos:
        body["ignore_eos"] = True
    return body


def is_due(measured_s: float | None, fingerprint: str | None, wanted: str, wall_s: float) -> bool:
    """Whether a model needs a benchmark: none yet, a day old, or of another engine or hardware."""
    return measured_s is None or fingerprint != wanted or wall_s - measured_s > MAX_AGE_S
