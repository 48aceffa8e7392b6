"""Decode speed and first-output time of one stream, from events that the coordinator itself timed.

First output is dispatch to first output event. Decode speed as a receipt shows it is (tokens - tokens of the first event)
over the time from the first to the last output event; tokens come from the final usage, clipped to what the text that we
saw can hold; one event gives no speed.
"""

from typing import Final, Literal, NamedTuple

MIN_SPAN_S: Final = 0.05
"""A decode span shorter than this is dominated by scheduling noise and gives no speed."""

SILENT_TOKENS: Final = 8
"""Tokens that show no text: the end of a turn, marks around tool calls and reasoning. Allowed beyond one a byte."""

TokenBasis = Literal["usage", "clipped", "estimated", "tokenizer"]


class StreamClock:
    """What the coordinator saw of one stream. Times in seconds of the monotonic clock, text in bytes of UTF-8."""

    first_output: float | None = None
    first_output_ms: float | None = None
    """From dispatch, `None` if there was no output."""
    last_output: float | None = None
    output_events: int = 0
    first_text_bytes: int = 0
    text_bytes: int = 0

    def __init__(self, dispatched: float) -> None:
        self.dispatched = dispatched

    def output(self, now: float, text_bytes: int) -> None:
        """An output event that carried `text_bytes` of text arrived."""
        if self.first_output is None:
            self._begins(now, text_bytes)
        self.last_output = now
        self.output_events += 1
        self.text_bytes += text_bytes

    def outputs(self, now: float, events: int, text_bytes: int, first_text_bytes: int) -> None:
        """Several output events arrived together; the first of them carried `first_text_bytes`."""
        if self.first_output is None:
            self._begins(now, first_text_bytes)
        self.last_output = now
        self.output_events += events
        self.text_bytes += text_bytes

    def _begins(self, now: float, text_bytes: int) -> None:
        self.first_output, self.first_text_bytes = now, text_bytes
        self.first_output_ms = round((now - self.dispatched) * 1000, 3)


class TokenCount(NamedTuple):
    """Completion tokens of one answer and what the number stands on."""

    tokens: int
    basis: TokenBasis


class StreamSample(NamedTuple):
    """One whole answer as its target may learn from it."""

    clock: StreamClock
    completion: TokenCount
    tok_s: float | None
    """Decode speed by `decode_tok_s`."""

    @property
    def empty(self) -> bool:
        """Whether it carried no output at all."""
        return self.clock.text_bytes == 0 and self.clock.output_events <= 1


def count_tokens(reported: int | None, clock: StreamClock, counted: int | None = None) -> TokenCount:
    """The tokens of an answer.

    A token is at least one byte of text, but for a few that show nothing; an engine that reports more is clipped. How many
    events the text came in says nothing: a node chooses where it cuts. Without a report the count is estimated from four
    bytes a token.

    Args:
        reported: the engine's own count.
        clock: what we saw.
        counted: by the model's own tokenizer over the same text, where the operator has it. The engine's count is taken
            while it fits: it knows of tokens that show no text, and of unusual ways to spell one.
    """
    if counted is not None:
        fits = reported is not None and reported <= counted + SILENT_TOKENS + counted // 50
        return TokenCount(reported if fits and reported is not None else counted, "tokenizer")
    bound = clock.text_bytes + SILENT_TOKENS if clock.output_events else 0
    if reported is None:
        return TokenCount(max(-(-clock.text_bytes // 4), min(1, clock.output_events)), "estimated")
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
