"""Decode speed and first-output time of one stream, and robust medians over many.

The rules: first output is dispatch to first output event; decode speed is (tokens - tokens of the first event) over the
time from the first to the last output event; tokens come from the final usage, clipped to what the text we saw can
hold; one event gives no speed; a stream that did not complete teaches nothing.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

SAMPLES: Final = 50
"""How many recent streams of one node and model count."""

MIN_SPAN_S: Final = 0.05
"""A decode span shorter than this is dominated by scheduling noise and gives no speed."""

TokenBasis = Literal["usage", "clipped", "estimated"]


@dataclass(slots=True)
class StreamClock:
    """What the coordinator saw of one stream. Times in seconds of the monotonic clock, text in bytes of UTF-8."""

    dispatched: float
    first_output: float | None = None
    last_output: float | None = None
    output_events: int = 0
    first_text_bytes: int = 0
    text_bytes: int = 0

    def output(self, now: float, text_bytes: int) -> None:
        """An output event that carried `text_bytes` of text arrived."""
        if self.first_output is None:
            self.first_output = now
            self.first_text_bytes = text_bytes
        self.last_output = now
        self.output_events += 1
        self.text_bytes += text_bytes

    @property
    def first_output_ms(self) -> float | None:
        """Dispatch to first output in ms, `None` if there was none."""
        return None if self.first_output is None else round((self.first_output - self.dispatched) * 1000, 3)


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Completion tokens of one answer and what the number stands on."""

    tokens: int
    basis: TokenBasis


def count_tokens(reported: int | None, clock: StreamClock) -> TokenCount:
    """The tokens of an answer.

    A token is at least one byte of text or one event, so an engine that reports more than the larger of both is
    clipped. Without a report the count is estimated from events and from four bytes a token, whichever is larger.
    """
    bound = max(clock.text_bytes, clock.output_events)
    if reported is None:
        return TokenCount(max(clock.output_events, clock.text_bytes // 4), "estimated")
    return TokenCount(reported, "usage") if reported <= bound else TokenCount(bound, "clipped")


def decode_tok_s(count: TokenCount, clock: StreamClock) -> float | None:
    """Decode speed in tokens per second, `None` where the stream gives none."""
    if clock.output_events < 2 or clock.first_output is None or clock.last_output is None:
        return None
    span_s = clock.last_output - clock.first_output
    if span_s < MIN_SPAN_S:
        return None
    first_tokens = count.tokens * clock.first_text_bytes / clock.text_bytes if clock.text_bytes else 1.0
    rest = count.tokens - max(1.0, first_tokens)
    return round(rest / span_s, 3) if rest > 0 else None


@dataclass(slots=True)
class MedianWindow:
    """Median over the last samples of one quantity."""

    _values: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def add(self, value: float) -> None:
        """Add one sample."""
        self._values.append(value)

    @property
    def value(self) -> float | None:
        """The median, `None` before the first sample."""
        return median(self._values) if self._values else None

    @property
    def samples(self) -> int:
        """How many samples the median stands on."""
        return len(self._values)
