"""What attempts have told of their own ends, so that telling it twice counts once.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "ends_told",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("step_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=4), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.CheckConstraint("kind IN ('do', 'undo', 'late')", name="kind_known"),
        sa.PrimaryKeyConstraint("run_id", "step_id", "kind", "fence"),
    )
