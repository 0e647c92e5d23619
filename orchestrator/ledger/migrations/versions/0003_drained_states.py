"""What the state store reports, how far it was read, and how it is built again after it forgot; whose each run is.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    say_whose_runs_are()
    create_run_states()
    create_step_states()
    create_history()
    create_cursors()
    create_admitted_plans()
    create_restores()


def say_whose_runs_are() -> None:
    """Where one installation has used the ledger, all runs are its own. Else nobody's, until one has them."""
    op.add_column("runs", sa.Column("namespace", sa.String(length=32), nullable=False, server_default=""))
    known = list(op.get_bind().execute(sa.text("SELECT namespace FROM epochs")).scalars())
    if len(known) == 1:
        op.get_bind().execute(sa.text("UPDATE runs SET namespace = :whose"), {"whose": known[0]})


def create_run_states() -> None:
    op.create_table(
        "run_states",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("fields_text", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )


def create_step_states() -> None:
    op.create_table(
        "step_states",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("step_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("record_text", sa.Text(), nullable=False),
        sa.Column("result_text", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "step_id"),
    )


def create_history() -> None:
    op.create_table(
        "history",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.String(length=64), nullable=False),
        sa.Column("fields_text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "version"),
    )
    op.create_index("history_by_time", "history", ["at"], unique=False)


def create_cursors() -> None:
    op.create_table(
        "cursors",
        sa.Column("namespace", sa.String(length=32), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("last_id", sa.String(length=41), nullable=False),
        sa.Column("drained_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("shard >= 0", name="shard_counted"),
        sa.PrimaryKeyConstraint("namespace", "shard"),
    )


def create_admitted_plans() -> None:
    op.create_table(
        "admitted_plans",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("plan_text", sa.Text(), nullable=False),
        sa.Column("silence_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "generation"),
    )


def create_restores() -> None:
    op.create_table(
        "restores",
        sa.Column("namespace", sa.String(length=32), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("found_at", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.String(length=32), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("era", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("token", sa.String(length=32), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.Column("report_text", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "shard", "found_at"),
    )
