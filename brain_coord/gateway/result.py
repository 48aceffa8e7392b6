"""What came of one request over all its attempts, and how each of them counts for its target."""

import random
from time import monotonic
from typing import Final

from brain_coord.classes.breaker import Ticket
from brain_coord.classes.target import Target
from brain_coord.gateway.answer import Answer
from brain_coord.gateway.engine_fault import EngineFault
from brain_coord.gateway.passage import Tail
from brain_coord.gateway.request import ApiRequest
from brain_coord.observe.trace import RequestTrace
from brain_coord.receipts.body import Attempt

MAX_ENGINE_ERRORS: Final = 2
MAX_SILENCES: Final = 2

NOT_ASKED: Final = frozenset({"no_free_slot", "paused", "replica_away"})
"""Causes of attempts in which the target never saw the request: to lose a race for a slot is no attempt."""


class Result:
    """What came of a request: exactly one of `tail`, `body`, `refusal` and `failure` is set.

    Attributes:
        keep_bytes: somebody will look at the answer's text, so its bytes are kept until its end.
    """

    target: Target | None = None
    answer: Answer | None = None
    tail: Tail | None = None
    body: bytes | None = None
    refusal: EngineFault | None = None
    failure: str | None = None
    retry_after: str | None = None
    engine_errors: int = 0
    silences: int = 0
    keep_bytes: bool = False
    trace: RequestTrace | None = None

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.reached: list[Attempt] = []
        """Those of them in which a target was really asked."""
        self.asked: list[tuple[Target, Attempt, Ticket | None]] = []
        self.failures: set[str] = set()

    @property
    def spent(self) -> bool:
        """Whether a further attempt would do more harm than good: the request costs too much, or breaks engines."""
        return self.engine_errors >= MAX_ENGINE_ERRORS or self.silences >= MAX_SILENCES

    @property
    def committed(self) -> bool:
        """Whether output was passed on to the client."""
        return self.answer is not None and self.answer.delivered_bytes > 0


def settle(request: ApiRequest, result: Result, *, completed: bool) -> None:
    """Tell every target that was asked how its attempt counts; called once, when the outcome is known.

    A prompt that two engines failed on says more about the prompt than about the engines, so it hurts nobody. One that is
    sent again and again counts once.

    Args:
        request: what was asked.
        result: of the request.
        completed: whether the client got a whole answer.
    """
    poisoned = result.engine_errors >= MAX_ENGINE_ERRORS
    for target, attempt, ticket in result.asked:
        if attempt.cause is None:
            answer = result.answer
            if completed and answer is not None and target is result.target:
                target.outcome(
                    "completed",
                    first_output_ms=answer.clock.first_output_ms if request.stream else None,
                    # What vectors and counts take says nothing of an answer that is written token by token.
                    total_ms=attempt.ended_ms if request.dialect.streams else None,
                    stream=answer.sample,
                )
            continue
        if not attempt.blamed:
            continue
        if is_engine_error(attempt):
            if ticket is not None:
                if poisoned:
                    target.health.dropped(ticket)
                else:
                    spread = random.random()  # noqa: S311
                    target.health.failed(ticket, monotonic(), attempt.cause, spread=spread, incident=request.sha256)
            if poisoned:
                continue
        word = "timed_out" if attempt.cause in ("timeout", "not_accepted") else "failed"
        target.outcome(word, first_output_ms=None, total_ms=None)


def is_engine_error(attempt: Attempt) -> bool:
    """Whether the engine itself failed with the request."""
    return attempt.cause == "engine_error" or (attempt.status is not None and attempt.status >= 500)
