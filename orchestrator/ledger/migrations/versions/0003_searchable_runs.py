"""What runs are searched by: the planner, in a column of its own.

Revision ID: 0003
"""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0001"

PAGE = 500
runs = sa.table(
    "runs", sa.column("run_id", sa.String), sa.column("submission_text", sa.Text), sa.column("planner", sa.Text)
)


def upgrade() -> None:
    op.add_column("runs", sa.Column("planner", sa.Text(), nullable=True))
    for page in pages(runs.c.run_id, runs.c.submission_text):
        name_planners(page)


def name_planners(page: list[Any]) -> None:
    named = [(run_id, json.loads(text).get("planner")) for run_id, text in page]
    for run_id, planner in named:
        if planner is not None:
            op.get_bind().execute(sa.update(runs).where(runs.c.run_id == run_id).values(planner=planner))


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
