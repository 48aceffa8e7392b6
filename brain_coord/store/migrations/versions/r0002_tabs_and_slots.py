"""What is remembered of browser tabs, and how many jobs at once a node was seen to bear."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column."""
    op.create_table(
        "tabs",
        sa.Column("tab_id", sa.String, primary_key=True),
        sa.Column("first_seen_s", sa.Double, nullable=False),
        sa.Column("last_seen_s", sa.Double, nullable=False),
        sa.Column("banned_reason", sa.String),
        sa.Column("strikes", sa.Integer, nullable=False),
        sa.Column("strike_reason", sa.String),
        sa.Column("aside_until_s", sa.Double, nullable=False),
        sa.Column("units", sa.BigInteger, nullable=False),
        sa.Column("operations", sa.Double, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("refused", sa.BigInteger, nullable=False),
    )
    op.create_index("tabs_by_time", "tabs", ["last_seen_s"])
    op.add_column("nodes", sa.Column("slots_borne", sa.Integer))
