"""What the store hands out: one frozen record for a row of each kind. Times are wall clock, seconds since 1970."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Plan = Literal["free", "paid"]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key; the key itself is not kept, only its SHA-256."""

    key_id: str
    """Public id, `k-…`; stands on receipts."""
    prefix: str
    """The first characters of the key, to recognise it by."""
    plan: Plan
    label: str | None
    created_s: float
    revoked_s: float | None = None
    """When it was revoked; `None` while it is good."""


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A token that admits nodes; the token itself is not kept, only its SHA-256."""

    token_id: str
    prefix: str
    operator: bool
    """Nodes that join with it are the operator's own hardware."""
    label: str | None
    uses_left: int | None
    """Nodes it may still admit; `None` for any number."""
    created_s: float
    expires_s: float | None
    revoked_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is remembered of a node between its sessions."""

    node_id: str
    public_key: bytes
    """Raw Ed25519 key, 32 bytes."""
    first_seen_s: float
    last_seen_s: float
    operator: bool
    """Joined with an operator token."""
    label: str | None = None
    region: str | None = None
    banned_reason: str | None = None
    """Why it is banned; `None` when it is not."""
    trusted: bool = False
    draining: bool = False
    """Taken out of service by the operator."""
    slots_borne: int | None = None
    """Jobs at once that it bore when it was seen to collapse under more; `None` when it never was."""

    @property
    def banned(self) -> bool:
        """Whether the operator has banned it."""
        return self.banned_reason is not None


@dataclass(frozen=True, slots=True)
class TabRecord:
    """What is remembered of a browser tab between its sessions, and over restarts."""

    tab_id: str
    first_seen_s: float
    last_seen_s: float
    banned_reason: str | None = None
    """Why the operator banned it; `None` when it is not banned."""
    strikes: int = 0
    """How often an answer of it did not stand its check."""
    strike_reason: str | None = None
    aside_until_s: float = 0.0
    """It gets no work before."""
    units: int = 0
    """Checked units of products."""
    operations: float = 0.0
    """Checked operations."""
    tokens: int = 0
    """Tokens of answers that it had a part in."""
    refused: int = 0
    """Answers that did not stand their check."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The latest join benchmark of one model on one node, on the coordinator's clock."""

    node_id: str
    model: str
    decode_tok_s: float
    first_output_ms: float | None
    compute_class: str | None
    """`EDGE`, `CONSUMER`, `PRO` or `DATACENTER`; `None` for a mock model."""
    fingerprint: str
    """Of engine, model and hardware: another one makes this benchmark stale."""
    measured_s: float


class Outcome(NamedTuple):
    """How one piece of work on a node ended; the reliability score is made from these."""

    node_id: str
    kind: str
    """`customer`, `shadow`, `canary` or `benchmark`."""
    result: str
    """`completed`, `failed`, `timed_out`, `matched` or `mismatched`."""
    at_s: float
    model: str | None = None
    detail: str | None = None
    """Cause code or receipt id: what an operator needs to understand this event."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """Connection time of a node on one UTC day, counted only while a coordinator was there to see it."""

    node_id: str
    day: int
    """Days since 1970-01-01."""
    connected_s: float
    observed_s: float
    """Time for which the node was known and a coordinator was up."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last link that pruning took out of a chain, without its body: its hash stays signed and linkable."""

    chain: str
    seq: int
    hash: bytes
    prev: bytes
    path: bytes
    public_key: bytes
    signature: bytes
    pruned_s: float


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Whether receipts are being recorded, and where."""

    state: Literal["ok", "spooling", "refusing"]
    """`ok`: in the database. `spooling`: on disk, to be written later. `refusing`: not at all."""
    reason: str | None = None
    """Why it is not `ok`."""
    since_s: float | None = None
    """Wall time since when."""
    spooled: int = 0
    """Receipts that wait in the spool."""
