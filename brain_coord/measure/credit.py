"""How much of a stream's decode speed a node is credited with: the rule that makes holding back frames worthless.

A node can delay what it sends, never hasten it. Delaying the *first* output shortens the span from first to last output,
so the plain formula would reward a node that keeps everything back and then bursts. What delays cannot shorten is the
time from dispatch to the *last* output. So a speed is credited only as far as that whole time bears it out:

    whole    = last output - dispatch - round trip (at most 300 ms) - 50 ms
    prompt   = bytes of the request / 64: the tokens an engine could have written while it read the prompt
    credited = min(found, (tokens + min(prompt, tokens / 20)) / whole)

`found` is the plain formula. An honest stream begins soon, `credited` is `found`, and nothing is lost; a node that holds
back gains at most the 5 % by which any measurement may be off. Where a long prompt (rather than holding back) may be why
the first output was late, the two cannot be told apart: then the stream only bounds the speed from above,
(tokens + prompt) / whole, and teaches nothing unless that contradicts what is credited already. Streams whose whole time
is under half a second bound it likewise: in those a delayed pong could be worth more than the latency score it costs. And
so do streams without a usage: their tokens are estimated, and to keep silent about them must not pay.
"""

from typing import Final, NamedTuple

from brain_coord.measure.speed import StreamSample

MAX_RTT_S: Final = 0.3
"""The longest round trip that is allowed for; beyond it the latency term has nothing left to lose."""

HOP_S: Final = 0.05
"""Allowed on top for scheduling on both sides and the engine's own front."""

PROMPT_BYTES_PER_STEP: Final = 64.0
"""Bytes of prompt (about 16 tokens) that even a slow engine reads in the time it takes to write one token."""

PROMPT_SHARE: Final = 1 / 20
"""A wait for the first output worth more than this share of the answer cannot be told from holding back."""

MIN_WHOLE_S: Final = 0.5
"""A stream shorter than this gives only an upper bound."""


class Credit(NamedTuple):
    """What one stream says about decode speed, in tokens per second."""

    tok_s: float
    at_most: bool
    """It bounds the speed from above and does not measure it."""


def credit(
    sample: StreamSample, *, prompt_bytes: int, rtt_ms: float | None, dispatched: float | None = None
) -> Credit | None:
    """What a completed stream is worth, `None` where it teaches nothing.

    Args:
        sample: the answer.
        prompt_bytes: size of the request's body.
        rtt_ms: median round trip of the node's link; without one nothing is allowed for it.
        dispatched: when the job left for the node (monotonic seconds), if later than the attempt began.
    """
    clock, (tokens, basis), found = sample
    if found is None or clock.last_output is None:
        return None
    whole_s = clock.last_output - (clock.dispatched if dispatched is None else dispatched) - _allowed_s(rtt_ms)
    if whole_s <= 0:
        return None
    prompt = prompt_bytes / PROMPT_BYTES_PER_STEP
    share = tokens * PROMPT_SHARE
    borne_out = (tokens + min(prompt, share)) / whole_s
    if whole_s >= MIN_WHOLE_S and (found <= borne_out or prompt <= share) and basis != "estimated":
        return Credit(round(min(found, borne_out), 3), at_most=False)
    return Credit(round((tokens + prompt) / whole_s, 3), at_most=True)


def delivered(tokens: int, *, prompt_bytes: int, elapsed_s: float, rtt_ms: float | None) -> Credit | None:
    """At what speed an answer of any kind was delivered, reading the prompt included; `None` where that says nothing.

    Args:
        tokens: of the answer.
        prompt_bytes: size of the request's body.
        elapsed_s: from dispatch to the answer's end.
        rtt_ms: median round trip of the node's link.
    """
    whole_s = elapsed_s - _allowed_s(rtt_ms)
    if whole_s <= 0 or tokens <= 0:
        return None
    prompt = prompt_bytes / PROMPT_BYTES_PER_STEP
    short = whole_s < MIN_WHOLE_S or prompt > tokens * PROMPT_SHARE
    return Credit((tokens + prompt) / whole_s, at_most=short)


def _allowed_s(rtt_ms: float | None) -> float:
    return min(MAX_RTT_S, (rtt_ms or 0.0) / 1000) + HOP_S
