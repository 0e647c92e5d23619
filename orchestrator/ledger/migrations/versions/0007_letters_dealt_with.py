"""What letters are grouped and found by, whose they are, and what people decide about them.

Revision ID: 0007
"""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from schemas.fingerprint import fingerprint

revision = "0007"
down_revision = "0006"

PAGE = 200
letters = sa.table(
    "dead_letters",
    *(sa.column(name) for name in ("id", "kind", "run_id", "reason", "content_text")),
    *(sa.column(name) for name in ("fingerprint", "action", "planner", "session_id", "namespace")),
)
runs = sa.table("runs", *(sa.column(name) for name in ("run_id", "planner", "session_id", "namespace")))


def upgrade() -> None:
    op.add_column("dead_letters", sa.Column("fingerprint", sa.String(length=12), nullable=False, server_default=""))
    for name in ("action", "planner", "session_id"):
        op.add_column("dead_letters", sa.Column(name, sa.Text(), nullable=True))
    op.add_column("dead_letters", sa.Column("namespace", sa.String(length=32), nullable=False, server_default=""))
    only = only_namespace()
    for page in pages():
        label(page, only)
    op.create_index("letters_by_trouble", "dead_letters", ["status", "fingerprint", "created_at"], unique=False)
    create_letter_decisions()


def create_letter_decisions() -> None:
    op.create_table(
        "letter_decisions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("letter_id", sa.String(length=128), nullable=False),
        sa.Column("namespace", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("details_text", sa.Text(), nullable=True),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(outcome IS NULL) = (done_at IS NULL)", name="done_has_outcome"),
        sa.ForeignKeyConstraint(["letter_id"], ["dead_letters.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("letter_decisions_by_letter", "letter_decisions", ["letter_id", "created_at"], unique=False)
    op.create_index("letter_decisions_pending", "letter_decisions", ["done_at", "created_at", "id"], unique=False)


def only_namespace() -> str:
    """Where one installation has used the ledger, a letter without a run is its own. Else nobody's."""
    known = list(op.get_bind().execute(sa.text("SELECT namespace FROM epochs")).scalars())
    return known[0] if len(known) == 1 else ""


def label(page: list[Any], only: str) -> None:
    found = {row.run_id for row in page if row.run_id}
    known = {row.run_id: row for row in op.get_bind().execute(sa.select(runs).where(runs.c.run_id.in_(found)))}
    for row in page:
        content, run = json.loads(row.content_text), known.get(row.run_id)
        said = {
            name: content.get(name) if isinstance(content.get(name), str) else None for name in ("action", "planner")
        }
        values = {"fingerprint": fingerprint(row.kind, row.reason, content), "action": said["action"]}
        values |= {"planner": run.planner if run else said["planner"], "session_id": run.session_id if run else None}
        values["namespace"] = run.namespace if run else only
        op.get_bind().execute(sa.update(letters).where(letters.c.id == row.id).values(**values))


def pages() -> Iterator[list[Any]]:
    """All letters by id, a bounded number at a time: they may be long."""
    after = ""
    while True:
        query = sa.select(letters).where(letters.c.id > after).order_by(letters.c.id).limit(PAGE)
        page = list(op.get_bind().execute(query))
        if not page:
            return
        yield page
        after = page[-1].id
