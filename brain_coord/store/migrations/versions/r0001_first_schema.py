"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String, primary_key=True),
        sa.Column("sha256", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("prefix", sa.String, nullable=False),
        sa.Column("plan", sa.String, nullable=False),
        sa.Column("label", sa.String),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("revoked_s", sa.Double),
    )
    op.create_table(
        "join_tokens",
        sa.Column("token_id", sa.String, primary_key=True),
        sa.Column("sha256", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("prefix", sa.String, nullable=False),
        sa.Column("operator", sa.Boolean, nullable=False),
        sa.Column("label", sa.String),
        sa.Column("uses_left", sa.Integer),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("expires_s", sa.Double),
        sa.Column("revoked_s", sa.Double),
    )
    op.create_table(
        "token_uses",
        sa.Column("token_id", sa.String, sa.ForeignKey("join_tokens.token_id"), primary_key=True),
        sa.Column("node_id", sa.String, primary_key=True),
        sa.Column("used_s", sa.Double, nullable=False),
    )
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.String, primary_key=True),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("first_seen_s", sa.Double, nullable=False),
        sa.Column("last_seen_s", sa.Double, nullable=False),
        sa.Column("operator", sa.Boolean, nullable=False),
        sa.Column("label", sa.String),
        sa.Column("region", sa.String),
        sa.Column("banned_reason", sa.String),
        sa.Column("trusted", sa.Boolean, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
    )
    op.create_table(
        "node_benchmarks",
        sa.Column("node_id", sa.String, primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("decode_tok_s", sa.Double, nullable=False),
        sa.Column("first_output_ms", sa.Double),
        sa.Column("compute_class", sa.String),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("measured_s", sa.Double, nullable=False),
    )
    op.create_table(
        "outcomes",
        sa.Column(
            "outcome_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        sa.Column("node_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("result", sa.String, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("model", sa.String),
        sa.Column("detail", sa.String),
    )
    op.create_index("outcomes_by_node", "outcomes", ["node_id", "at_s"])
    op.create_index("outcomes_by_time", "outcomes", ["at_s"])
    op.create_table(
        "node_uptime",
        sa.Column("node_id", sa.String, primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True),
        sa.Column("connected_s", sa.Double, nullable=False),
        sa.Column("observed_s", sa.Double, nullable=False),
    )
    op.create_table(
        "signer_keys",
        sa.Column("key_id", sa.String, primary_key=True),
        sa.Column("chain", sa.String, nullable=False),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("from_s", sa.Double, nullable=False),
        sa.Column("until_s", sa.Double),
        sa.Column("endorsed_by", sa.String),
        sa.Column("endorsement", sa.LargeBinary),
    )
    op.create_table(
        "receipts",
        sa.Column("chain", sa.String, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("receipt_id", sa.String, nullable=False),
        sa.Column("key_id", sa.String),
        sa.Column("node_id", sa.String),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("prev", sa.LargeBinary, nullable=False),
        sa.Column("path", sa.LargeBinary, nullable=False),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("receipts_by_id", "receipts", ["receipt_id"])
    op.create_index("receipts_by_key", "receipts", ["key_id", "chain", "seq"])
    op.create_table(
        "receipt_checkpoints",
        sa.Column("chain", sa.String, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("prev", sa.LargeBinary, nullable=False),
        sa.Column("path", sa.LargeBinary, nullable=False),
        sa.Column("public_key", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("pruned_s", sa.Double, nullable=False),
    )
