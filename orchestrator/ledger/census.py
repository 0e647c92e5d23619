"""Counting what the ledger still waits for; by indexes, since it is asked every few seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, and_, func, select, text

from orchestrator.ledger.tables import OWED_DELIVERIES, dead_letters, decisions, deliveries, runs
from schemas.dead_letter import DeadLetterStatus
from schemas.ids import RunRef

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Census:
    """Times: milliseconds since the epoch, None where there is nothing. overdue: up to SHOWN runs without an end whose
    deadline, as it was at their acceptance, has passed. letters: kind -> number of open ones. callbacks: that are still
    to be told; oldest_callback: when the first of these was due.
    """

    open_runs: int
    oldest_run: int | None
    overdue: tuple[RunRef, ...]
    decisions: int
    oldest_decision: int | None
    letters: Mapping[str, int] = field(default_factory=dict)
    callbacks: int = 0
    oldest_callback: int | None = None


def take(connection: Connection, now: int, namespace: str) -> Census:
    """One transaction's view of what is a namespace's, or nobody's yet."""
    ours = (namespace, "")
    is_open = and_(runs.c.ended_at.is_(None), runs.c.namespace.in_(ours))
    open_runs = connection.execute(select(func.count(), func.min(runs.c.accepted_at)).where(is_open)).one()
    late = select(runs.c.run_id, runs.c.session).where(is_open, runs.c.accepted_at + runs.c.deadline_ms < now)
    about_ours = select(decisions).join(runs, runs.c.run_id == decisions.c.run_id).where(runs.c.namespace.in_(ours))
    waiting = about_ours.where(decisions.c.done_at.is_(None))
    counting = waiting.with_only_columns(func.count(), func.min(decisions.c.created_at))
    orders = connection.execute(counting).one()
    is_letter_open = and_(dead_letters.c.status == DeadLetterStatus.OPEN, dead_letters.c.namespace.in_(ours))
    counted = select(dead_letters.c.kind, func.count()).where(is_letter_open).group_by(dead_letters.c.kind)
    owed = (text(OWED_DELIVERIES), deliveries.c.namespace.in_(ours))
    told = connection.execute(select(func.count(), func.min(deliveries.c.due_at)).where(*owed)).one()
    return Census(
        open_runs=open_runs[0],
        oldest_run=open_runs[1],
        overdue=tuple(RunRef(*row) for row in connection.execute(late.limit(SHOWN))),
        decisions=orders[0],
        oldest_decision=orders[1],
        letters={row.kind: row[1] for row in connection.execute(counted)},
        callbacks=told[0],
        oldest_callback=told[1],
    )
