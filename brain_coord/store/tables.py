"""The tables, in SQLAlchemy Core. A change here needs a migration; a test compares the two."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

metadata = MetaData()

_Serial = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only for plain INTEGER

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", String, primary_key=True),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("prefix", String, nullable=False),
    Column("plan", String, nullable=False),
    Column("label", String),
    Column("created_s", Double, nullable=False),
    Column("revoked_s", Double),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("token_id", String, primary_key=True),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("prefix", String, nullable=False),
    Column("operator", Boolean, nullable=False),
    Column("label", String),
    Column("uses_left", Integer),
    Column("created_s", Double, nullable=False),
    Column("expires_s", Double),
    Column("revoked_s", Double),
)

# Which nodes a token admitted: a node that comes back with its token file does not use it up again.
token_uses = Table(
    "token_uses",
    metadata,
    Column("token_id", String, ForeignKey("join_tokens.token_id"), primary_key=True),
    Column("node_id", String, primary_key=True),
    Column("used_s", Double, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", String, primary_key=True),
    Column("public_key", LargeBinary, nullable=False),
    Column("first_seen_s", Double, nullable=False),
    Column("last_seen_s", Double, nullable=False),
    Column("operator", Boolean, nullable=False),
    Column("label", String),
    Column("region", String),
    Column("banned_reason", String),
    Column("trusted", Boolean, nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("slots_borne", Integer),
)

tabs = Table(
    "tabs",
    metadata,
    Column("tab_id", String, primary_key=True),
    Column("first_seen_s", Double, nullable=False),
    Column("last_seen_s", Double, nullable=False),
    Column("banned_reason", String),
    Column("strikes", Integer, nullable=False),
    Column("strike_reason", String),
    Column("aside_until_s", Double, nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("operations", Double, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Index("tabs_by_time", "last_seen_s"),
)

node_benchmarks = Table(
    "node_benchmarks",
    metadata,
    Column("node_id", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("decode_tok_s", Double, nullable=False),
    Column("first_output_ms", Double),
    Column("compute_class", String),
    Column("fingerprint", String, nullable=False),
    Column("measured_s", Double, nullable=False),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("outcome_id", _Serial, primary_key=True, autoincrement=True),
    Column("node_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("result", String, nullable=False),
    Column("at_s", Double, nullable=False),
    Column("model", String),
    Column("detail", String),
    Index("outcomes_by_node", "node_id", "at_s"),
    Index("outcomes_by_time", "at_s"),
)

node_uptime = Table(
    "node_uptime",
    metadata,
    Column("node_id", String, primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("connected_s", Double, nullable=False),
    Column("observed_s", Double, nullable=False),
)

signer_keys = Table(
    "signer_keys",
    metadata,
    Column("key_id", String, primary_key=True),
    Column("chain", String, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("from_s", Double, nullable=False),
    Column("until_s", Double),
    Column("endorsed_by", String),
    Column("endorsement", LargeBinary),
)

# The body comes last: looking at the columns before it then needs none of its overflow pages.
receipts = Table(
    "receipts",
    metadata,
    Column("chain", String, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("receipt_id", String, nullable=False),
    Column("key_id", String),
    Column("node_id", String),
    Column("created_s", Double, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("prev", LargeBinary, nullable=False),
    Column("path", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("receipts_by_id", "receipt_id"),
    Index("receipts_by_key", "key_id", "chain", "seq"),
)

receipt_checkpoints = Table(
    "receipt_checkpoints",
    metadata,
    Column("chain", String, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("prev", LargeBinary, nullable=False),
    Column("path", LargeBinary, nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("pruned_s", Double, nullable=False),
)
