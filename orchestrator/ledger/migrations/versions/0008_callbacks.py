"""Whom a run's end is told, and what came of it.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

OWED = "state = 'pending'"


def upgrade() -> None:
    op.add_column("runs", sa.Column("callback", sa.Text(), nullable=True))
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("namespace", sa.String(length=32), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("body_text", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("attempts_before", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("taken_until", sa.BigInteger(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(state = 'pending') = (done_at IS NULL)", name="done_has_time"),
        sa.CheckConstraint("state IN ('pending', 'delivered', 'disabled', 'given_up')", name="state_known"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "generation", name="one_delivery_per_end"),
    )
    op.create_index(
        "deliveries_owed",
        "deliveries",
        ["namespace", "due_at", "id"],
        unique=False,
        sqlite_where=sa.text(OWED),
        postgresql_where=sa.text(OWED),
    )
