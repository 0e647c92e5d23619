"""The first schema: runs, plans, planners' answers, effects, epochs, decisions, dead letters, records.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    create_runs()
    create_plans()
    create_planner_answers()
    create_effects()
    create_epochs()
    create_decisions()
    create_dead_letters()
    create_records()
    create_record_changes()


def create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("session", sa.String(length=16), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("submission_hash", sa.String(length=64), nullable=False),
        sa.Column("submission_text", sa.Text(), nullable=False),
        sa.Column("policy_text", sa.Text(), nullable=False),
        sa.Column("policy_hash", sa.String(length=64), nullable=False),
        sa.Column("context_hash", sa.String(length=64), nullable=False),
        sa.Column("deadline_ms", sa.BigInteger(), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "status IN ('accepted', 'planning', 'running', 'failing', 'compensating', 'succeeded', 'failed', "
            "'cancelled', 'dead_lettered', 'compensated', 'compensation_failed')",
            name="status_known",
        ),
        sa.CheckConstraint("generation >= 1", name="generation_counted"),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("runs_by_end", "runs", ["ended_at", "run_id"], unique=False)
    op.create_index("runs_by_time", "runs", ["accepted_at", "run_id"], unique=False)


def create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("plan_hash", sa.String(length=64), nullable=False),
        sa.Column("plan_text", sa.Text(), nullable=False),
        sa.Column("planner", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.run_id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "generation"),
    )


def create_planner_answers() -> None:
    op.create_table(
        "planner_answers",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("planner", sa.Text(), nullable=False),
        sa.Column("raw_text", sa.Text(), nullable=False),
        sa.Column("details_text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("number >= 0", name="number_counted"),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.run_id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "generation", "number"),
    )


def create_effects() -> None:
    op.create_table(
        "effects",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("step_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=4), nullable=False),
        sa.Column("state", sa.String(length=6), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("closed_to", sa.BigInteger(), nullable=False),
        sa.Column("landed_by", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("token", sa.Text(), nullable=True),
        sa.Column("result_text", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('do', 'undo', 'late')", name="kind_known"),
        sa.CheckConstraint("state <> 'landed' OR result_text IS NOT NULL", name="landed_has_result"),
        sa.CheckConstraint("state <> 'open' OR since > 0", name="open_has_fence"),
        sa.CheckConstraint("state IN ('none', 'open', 'landed')", name="state_known"),
        sa.PrimaryKeyConstraint("run_id", "step_id", "kind"),
    )
    owed = sa.text("kind = 'late' AND state <> 'landed' AND closed_to = 0")
    op.create_index("effects_owed_late", "effects", ["updated_at"], sqlite_where=owed, postgresql_where=owed)


def create_epochs() -> None:
    op.create_table(
        "epochs",
        sa.Column("namespace", sa.String(length=32), nullable=False),
        sa.Column("epoch", sa.String(length=32), nullable=False),
        sa.Column("shards", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("shards >= 1", name="shards_counted"),
        sa.PrimaryKeyConstraint("namespace"),
    )


def create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("step_id", sa.String(length=64), nullable=True),
        sa.Column("details_text", sa.Text(), nullable=True),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(outcome IS NULL) = (done_at IS NULL)", name="done_has_outcome"),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.run_id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("decisions_by_run", "decisions", ["run_id"], unique=False)
    op.create_index("decisions_pending", "decisions", ["done_at", "created_at", "id"], unique=False)


def create_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("dedup_hash", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=True),
        sa.Column("step_id", sa.String(length=64), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("content_text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('message', 'submission', 'plan', 'step', 'undo', 'delivery')", name="kind_known"),
        sa.CheckConstraint("status IN ('open', 'replayed', 'dropped')", name="status_known"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("dedup_hash", name="one_letter_per_cause"),
    )
    op.create_index("letters_by_run", "dead_letters", ["run_id"], unique=False)
    op.create_index("letters_by_time", "dead_letters", ["created_at", "id"], unique=False)


def create_records() -> None:
    op.create_table(
        "records",
        sa.Column("entity_id", sa.String(length=36), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("data_text", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("version >= 0", name="version_counted"),
        sa.PrimaryKeyConstraint("entity_id"),
    )


def create_record_changes() -> None:
    op.create_table(
        "record_changes",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("step_id", sa.String(length=64), nullable=False),
        sa.Column("entity_id", sa.String(length=36), nullable=False),
        sa.Column("version_before", sa.BigInteger(), nullable=False),
        sa.Column("version_after", sa.BigInteger(), nullable=False),
        sa.Column("before_text", sa.Text(), nullable=True),
        sa.Column("undone_version", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("version_after = version_before + 1", name="version_steps_by_one"),
        sa.ForeignKeyConstraint(
            ["entity_id"],
            ["records.entity_id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "step_id"),
        sa.UniqueConstraint("entity_id", "version_after", name="one_change_per_version"),
    )
