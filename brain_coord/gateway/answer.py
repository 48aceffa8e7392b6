"""What is known of one answer while it passes: its clock, its tokens, its hash, and how it ended."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal

from brain_coord.measure.speed import StreamClock, TokenCount, count_tokens, decode_tok_s

Outcome = Literal["completed", "failed", "incomplete", "client_cancelled", "slow_client", "deadline", "refused"]
"""How a request ended: `refused` is the engine's own 4xx, `incomplete` broke off after the first output."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one target; times in ms since the request arrived.

    Attributes:
        cause: `None` when it succeeded, else a stable word.
        ran: whether the engine may have begun the work.
        blamed: whether the fault counts against the target.
    """

    resource_class: str
    target: str
    model: str
    started_ms: float
    ended_ms: float
    cause: str | None
    status: int | None
    ran: bool
    blamed: bool

    def to_dict(self) -> dict[str, Any]:
        """As receipts and errors show it."""
        return {
            "class": self.resource_class,
            "target": self.target,
            "model": self.model,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "cause": self.cause,
            "status": self.status,
            "ran": self.ran,
            "blamed": self.blamed,
        }


@dataclass(slots=True)
class Answer:
    """The answer of one attempt, as far as it has come."""

    clock: StreamClock
    usage: dict[str, Any] | None = None
    finished: bool = False
    delivered_bytes: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def passed_on(self, data: bytes) -> None:
        """These bytes of the target were given to the client."""
        self.digest.update(data)
        self.delivered_bytes += len(data)

    @property
    def sha256(self) -> str:
        """Over the target's bytes that were passed on, before `brain` was added."""
        return str(self.digest.hexdigest())

    def reported(self, name: str) -> int | None:
        """A token count from the last usage, `None` if absent or not a count."""
        value = (self.usage or {}).get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    @property
    def completion(self) -> TokenCount:
        """Completion tokens, by the rules of `measure.speed`."""
        return count_tokens(self.reported("completion_tokens"), self.clock)

    @property
    def tok_s(self) -> float | None:
        """Decode speed of a stream that completed."""
        return decode_tok_s(self.completion, self.clock) if self.finished else None
