"""What `receipts`, `ledger` and `check-config` print. Hashes in hex, keys and signatures in base64."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from brain_coord.cli.shapes.base import Shape


class Attempt(Shape):
    """One try at one target; times in ms since the request arrived."""

    resource_class: str = Field(alias="class")
    target: str
    model: str
    started_ms: float
    ended_ms: float
    cause: str | None
    """Null when it succeeded."""
    status: int | None
    ran: bool
    blamed: bool


class Decisions(Shape):
    """What both routers recorded, enough to decide again: `brain-coord route --receipt`."""

    class_decision: dict[str, Any] | None = Field(alias="class")
    node: dict[str, Any] | None


class Tokens(Shape):
    """Token counts, each by who counted it."""

    prompt_reported: int | None
    completion_reported: int | None
    completion_counted: int | None
    counted_by: Literal["tokenizer", "text bound", "estimate"] | None
    prompt_billed: int | None
    completion_billed: int | None


class Timings(Shape):
    """Durations on the coordinator's clock."""

    measured_by: Literal["coordinator"]
    queued_ms: float | None
    first_output_ms: float | None
    decode_ms: float | None
    decode_tok_s: float | None
    total_ms: float | None


class Price(Shape):
    """By the prices of the target that answered."""

    amount_usd: float
    prompt_usd_per_1m: float | None
    completion_usd_per_1m: float | None


class Body(Shape):
    """What a receipt says; kinds of work with more to say add members of their own."""

    model_config = ConfigDict(extra="allow")

    id: str
    request_id: str
    time: str
    key: str | None
    plan: str
    route: str
    model: str
    served_model: str | None
    mode: str
    privacy: str
    streamed: bool
    request_sha256: str
    response_sha256: str | None
    decision: Decisions
    attempts: list[Attempt]
    resource_class: str | None = Field(alias="class")
    node: str | None
    outcome: str
    error: str | None
    tokens: Tokens
    timings: Timings
    price: Price | None


class Receipt(Shape):
    """One receipt in its place in its chain."""

    format: str
    chain: str
    seq: int
    prev: str
    hash: str
    body: Body
    path: list[str]
    """Steps from the hash to the signed root, `L` or `R` and a hash each."""
    signer: str
    public_key: str
    signature: str


class BadLink(Shape):
    """The first receipt that does not verify."""

    file: str
    line: int
    chain: str | None
    seq: int | None
    code: str
    message: str


class ChainSpan(Shape):
    """What was given of one chain."""

    first_seq: int
    last_seq: int
    last_hash: str


class Verified(Shape):
    """What came of a check; exit code 1 when it is not ok."""

    receipts: int
    gaps: int
    chains: dict[str, ChainSpan]
    signers: list[str]
    pinned: bool
    """Whether only named keys counted."""
    ok: bool
    bad: BadLink | None


class Checkpoint(Shape):
    """The last deleted link, from which a chain goes on."""

    seq: int
    hash: str
    prev: str
    path: list[str]
    signer: str
    public_key: str
    signature: str
    pruned: str


class PrunedChain(Shape):
    """One chain."""

    chain: str
    pruned: int
    checkpoint: Checkpoint | None


class Pruned(Shape):
    """What was deleted."""

    before: str
    chains: list[PrunedChain]


class LedgerRow(Shape):
    """What one node did, or one key used, of one model."""

    side: Literal["node", "key"]
    id: str
    model: str
    requests: int
    completed: int
    prompt_tokens: int
    completion_tokens: int
    reported_tokens: int
    work_units: float | None
    """Parameters × tokens / 2^20."""
    amount_usd: float | None
    unpriced_requests: int


class ConfigFault(Shape):
    """One thing that is wrong."""

    source: str
    table: str | None
    key: str | None
    message: str
    allowed: list[str]


class ConfigGood(Shape):
    """A configuration that can be used, with every value and where it comes from."""

    ok: Literal[True]
    file: str | None
    warnings: list[str]
    settings: dict[str, Any]
    """By table: each key with `value` and `source`; `cloud` and `external` are lists of upstreams without their keys."""


class ConfigBad(Shape):
    """A configuration that cannot be used; exit code 78."""

    ok: Literal[False]
    code: str
    faults: list[ConfigFault]
