"""What a receipt says about one request, as a frozen draft that the gateway fills and the chain seals.

No prompt and no answer text: hashes, decisions, counts and times only. What is not known is `None`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import modf
from types import MappingProxyType
from typing import Any, NamedTuple

from brain_coord.receipts.canonical import Written, canonical, plain, ready, write

Json = Mapping[str, Any]


class Tokens(NamedTuple):
    """Token counts of one request, each by who counted it."""

    prompt_reported: int | None = None
    """Prompt tokens as the engine's usage says."""
    completion_reported: int | None = None
    """Completion tokens as the engine's usage says."""
    completion_counted: int | None = None
    """Completion tokens as the coordinator counted or bounded them from what passed."""
    counted_by: str | None = None
    """How it was counted: `tokenizer`, `text bound` or `estimate`."""
    prompt_billed: int | None = None
    """Prompt tokens that count for the ledger: never more than the request can hold, unless it holds more than text."""
    completion_billed: int | None = None
    """Completion tokens that count for the ledger: never more than was counted."""


class Timings(NamedTuple):
    """Durations on the coordinator's monotonic clock."""

    queued_ms: float | None = None
    """Wait for a free slot before the first attempt."""
    first_output_ms: float | None = None
    """From dispatch of the winning attempt to its first event with real output."""
    decode_ms: float | None = None
    """From the first to the last output event."""
    decode_tok_s: float | None = None
    """Decode speed over that span; `None` when a single event carried everything."""
    total_ms: float | None = None
    """From the whole request received to the end of the answer."""


class Price(NamedTuple):
    """What the request costs by the configured prices of the target that answered."""

    amount_usd: float
    """Price of this request in US dollars."""
    prompt_usd_per_1m: float | None = None
    """Configured price of a million prompt tokens."""
    completion_usd_per_1m: float | None = None
    """Configured price of a million completion tokens."""


class Attempt(NamedTuple):
    """One try at one target; times in ms since the request arrived."""

    resource_class: str
    """Class of the target."""
    target: str
    """A node's or tab's id, or the operator's name for an upstream."""
    model: str
    """Model that was asked for there."""
    started_ms: float
    """When it began."""
    ended_ms: float
    """When it was over."""
    cause: str | None
    """`None` when it succeeded, else a stable word."""
    status: int | None
    """HTTP status of the target, where it gave one."""
    ran: bool
    """Whether the engine may have begun the work."""
    blamed: bool
    """Whether the fault counts against the target."""
    unit: int | None = None
    """Number of the unit that was tried, where the work is cut into units."""

    def to_dict(self) -> dict[str, Any]:
        """As receipts and errors show it."""
        members = {
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
        if self.unit is not None:
            members["unit"] = self.unit
        return members


class ReceiptDraft(NamedTuple):
    """One request as it ended, before its place in the chain is known."""

    receipt_id: str
    """Public id of the receipt, unguessable; the gateway makes it when the request comes in."""
    request_id: str
    """The `x-request-id` the client saw."""
    time_s: float
    """Wall clock at the arrival of the request, in seconds since 1970: a label, never used for a duration."""
    key_id: str | None
    """Id of the API key that made the request; `None` for keyless use."""
    plan: str
    """Plan of that key: `free` or `paid`."""
    route: str
    """API route, such as `/v1/chat/completions`."""
    model: str
    """Model as the client named it."""
    served_model: str | None
    """Model that answered; differs for `brain/auto`, `None` when nothing answered."""
    mode: str
    """Mode after resolution: `AUTO`, `COMMUNITY`, `CHEAP` …"""
    privacy: str
    """Privacy level after resolution: `PUBLIC`, `STANDARD` or `PRIVATE`."""
    streamed: bool
    """Whether the client asked for a stream."""
    request_sha256: str
    """SHA-256 of the request body as received, lower-case hex."""
    response_sha256: str | None
    """SHA-256 of the answer's bytes as passed to the client; `None` when none were."""
    class_decision: Written
    """The class router's decision record: inputs, scores of the ranked, reasons of the excluded."""
    node_decision: Written | None
    """The node router's decision record; `None` when no node class was used."""
    attempts: Sequence[Attempt]
    """Every target tried, in order."""
    resource_class: str | None
    """Class that answered; `None` when none did."""
    node_id: str | None
    """Node that answered; `None` when it was no node."""
    outcome: str
    """How it ended: `completed`, `failed`, `incomplete`, `client_cancelled`, `slow_client` …"""
    error_code: str | None = None
    """The stable error code the client got, if any."""
    tokens: Tokens = Tokens()
    """Token counts."""
    timings: Timings = Timings()
    """Durations."""
    price: Price | None = None
    """Price, or `None` where none is configured."""
    extra: Json = MappingProxyType({})
    """Further members for kinds of work that have more to say (how it was verified, who held which stage)."""

    def canonical(self) -> bytes:
        """The canonical JSON of the body.

        Raises:
            CanonicalError: a member holds something that is not JSON.
        """
        body = self.body()
        if self.extra:
            return canonical(body)
        # The names and most values of a draft are ours and stand in canonical form already; numbers nearly always do.
        numbers = [*self.timings]
        for attempt in self.attempts:
            numbers += attempt.started_ms, attempt.ended_ms
        if self.price is not None:
            numbers += self.price
        if not plain(numbers):
            for name in ("attempts", "timings", "price"):
                body[name] = ready(body[name])
        return write(body)

    def body(self) -> dict[str, Any]:
        """The receipt's body as plain JSON values; `extra` cannot replace a member."""
        tokens, timings, price = self.tokens, self.timings, self.price
        return {
            **self.extra,
            "id": self.receipt_id,
            "request_id": self.request_id,
            "time": timestamp(self.time_s),
            "key": self.key_id,
            "plan": self.plan,
            "route": self.route,
            "model": self.model,
            "served_model": self.served_model,
            "mode": self.mode,
            "privacy": self.privacy,
            "streamed": self.streamed,
            "request_sha256": self.request_sha256,
            "response_sha256": self.response_sha256,
            "decision": {"class": self.class_decision, "node": self.node_decision},
            "attempts": [attempt.to_dict() for attempt in self.attempts],
            "class": self.resource_class,
            "node": self.node_id,
            "outcome": self.outcome,
            "error": self.error_code,
            "tokens": {
                "prompt_reported": tokens.prompt_reported,
                "completion_reported": tokens.completion_reported,
                "completion_counted": tokens.completion_counted,
                "counted_by": tokens.counted_by,
                "prompt_billed": tokens.prompt_billed,
                "completion_billed": tokens.completion_billed,
            },
            "timings": {
                "measured_by": "coordinator",
                "queued_ms": timings.queued_ms,
                "first_output_ms": timings.first_output_ms,
                "decode_ms": timings.decode_ms,
                "decode_tok_s": timings.decode_tok_s,
                "total_ms": timings.total_ms,
            },
            "price": None
            if price is None
            else {
                "amount_usd": price.amount_usd,
                "prompt_usd_per_1m": price.prompt_usd_per_1m,
                "completion_usd_per_1m": price.completion_usd_per_1m,
            },
        }


def timestamp(time_s: float) -> str:
    """Wall time as RFC 3339 in UTC with milliseconds."""
    fraction, whole = modf(time_s)
    second, micros = divmod(int(whole) * 1_000_000 + round(fraction * 1_000_000), 1_000_000)
    return f"{_to_the_second(second)}.{micros // 1000:03}Z"


@lru_cache(maxsize=4)
def _to_the_second(time_s: int) -> str:
    # Thousands of receipts share it, and to write a date costs as much as half of the other members.
    return datetime.fromtimestamp(time_s, UTC).replace(tzinfo=None).isoformat()


def time_of(text: str) -> float:
    """Seconds since 1970 of a receipt's `time`.

    Raises:
        ValueError: the text is no RFC 3339 time.
    """
    return datetime.fromisoformat(text).timestamp()
