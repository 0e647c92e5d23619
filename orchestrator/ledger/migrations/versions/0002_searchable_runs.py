"""What runs are searched by: the planner in a column of its own, actions and kinds of errors in a table, indexes.

Revision ID: 0002
"""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

PAGE = 500
plans = sa.table(
    "plans", sa.column("run_id", sa.String), sa.column("generation", sa.Integer), sa.column("plan_text", sa.Text)
)
run_words = sa.table(
    "run_words",
    sa.column("run_id", sa.String),
    sa.column("about", sa.String),
    sa.column("word", sa.Text),
    sa.column("accepted_at", sa.BigInteger),
)
runs = sa.table(
    "runs",
    sa.column("run_id", sa.String),
    sa.column("submission_text", sa.Text),
    sa.column("planner", sa.Text),
    sa.column("accepted_at", sa.BigInteger),
)


def upgrade() -> None:
    op.add_column("runs", sa.Column("planner", sa.Text(), nullable=True))
    create_run_words()
    for page in pages(runs.c.run_id, runs.c.submission_text, runs.c.accepted_at):
        name_planners(page)
        list_actions(page)
    for column in ("status", "session", "planner"):
        op.create_index(f"runs_by_{column}", "runs", [column, "accepted_at", "run_id"], unique=False)


def create_run_words() -> None:
    op.create_table(
        "run_words",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("about", sa.String(length=8), nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("accepted_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("about IN ('action', 'error')", name="about_known"),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["runs.run_id"],
        ),
        sa.PrimaryKeyConstraint("run_id", "about", "word"),
    )
    op.create_index("run_words_by_time", "run_words", ["about", "word", "accepted_at", "run_id"], unique=False)


def name_planners(page: list[Any]) -> None:
    named = [(row.run_id, json.loads(row.submission_text).get("planner")) for row in page]
    for run_id, planner in named:
        if planner is not None:
            op.get_bind().execute(sa.update(runs).where(runs.c.run_id == run_id).values(planner=planner))


def list_actions(page: list[Any]) -> None:
    accepted = {row.run_id: row.accepted_at for row in page}
    found = op.get_bind().execute(sa.select(plans).where(plans.c.run_id.in_(accepted)))
    words = {(plan.run_id, step["action"]) for plan in found for step in json.loads(plan.plan_text)["steps"]}
    rows = [
        {"run_id": run_id, "about": "action", "word": word, "accepted_at": accepted[run_id]} for run_id, word in words
    ]
    if rows:
        op.bulk_insert(run_words, rows)


def pages(*columns: Any) -> Iterator[list[Any]]:
    """All runs by id, a bounded number at a time: their submissions may be large."""
    after = ""
    while True:
        query = sa.select(*columns).where(runs.c.run_id > after).order_by(runs.c.run_id).limit(PAGE)
        page = list(op.get_bind().execute(query))
        if not page:
            return
        yield page
        after = page[-1].run_id
