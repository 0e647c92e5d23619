"""Which runs have lost their files to time, and which files of theirs were kept.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "workspaces_gone",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("gone_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"]),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "artifacts",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64)),
        sa.Column("left_out", sa.Text()),
        sa.Column("kept_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("(sha256 IS NULL) = (left_out IS NOT NULL)", name="kept_has_hash"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"]),
        sa.PrimaryKeyConstraint("run_id", "generation", "place", "path"),
    )
