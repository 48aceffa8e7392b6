"""What is known of one answer while it passes: its clock, its tokens, its hash, and how it ended."""

import hashlib
from typing import Literal

from brain_coord.gateway.dialects.seen import NO_USAGE, Usage
from brain_coord.measure.speed import StreamClock, StreamSample, count_tokens, decode_tok_s

Outcome = Literal["completed", "failed", "incomplete", "client_cancelled", "slow_client", "deadline", "refused"]
"""How a request ended: `refused` is the engine's own 4xx, `incomplete` broke off after the first output."""


class Answer:
    """The answer of one attempt, as far as it has come."""

    usage: Usage = NO_USAGE
    finished: bool = False
    delivered_bytes: int = 0
    counted: int | None = None
    """Tokens by the model's own tokenizer, where the operator has it."""
    _sealed: StreamSample | None = None
    _before_end: tuple["hashlib._Hash", int] | None = None

    def __init__(self, clock: StreamClock, kept: bytearray | None = None) -> None:
        """Args: `kept` gets the target's bytes, where somebody will look at the text; `None` for all others."""
        self.clock = clock
        self.kept = kept
        self.digest = hashlib.sha256()

    def seal(self) -> None:
        """Nothing more will come: what follows from it all is worked out once."""
        self._sealed = self.sample

    def passed_on(self, data: bytes) -> None:
        """These bytes of the target were given to the client."""
        self.digest.update(data)
        self.delivered_bytes += len(data)
        if self.kept is not None:
            self.kept += data

    def ends_with(self, rest: bytes) -> None:
        """These bytes, the last, are given to the client once the receipt, which tells of them, is durable."""
        self._before_end = self.digest.copy(), self.delivered_bytes
        self.passed_on(rest)

    def end_not_given(self) -> None:
        """The receipt was not to be had: the client gets an error in the place of the end."""
        if self._before_end is not None:
            self.digest, self.delivered_bytes = self._before_end

    @property
    def sha256(self) -> str:
        """Over the target's bytes that were passed on, before `brain` was added."""
        return self.digest.hexdigest()

    @property
    def sample(self) -> StreamSample:
        """What it comes to by the rules of `measure.speed`: its tokens, and the decode speed of a stream that completed."""
        if self._sealed is not None:
            return self._sealed
        completion = count_tokens(self.usage.completion, self.clock, self.counted)
        return StreamSample(self.clock, completion, decode_tok_s(completion, self.clock) if self.finished else None)
