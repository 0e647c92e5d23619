"""Counting what the ledger still waits for; by indexes, since it is asked every few seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, func, select

from orchestrator.ledger.tables import dead_letters, decisions, runs
from schemas.dead_letter import DeadLetterStatus
from schemas.ids import RunRef

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Census:
    """Times: milliseconds since the epoch, None where there is nothing. overdue: up to SHOWN runs without an end whose
    deadline, as it was at their acceptance, has passed. letters: kind -> number of open ones.
    """

    open_runs: int
    oldest_run: int | None
    overdue: tuple[RunRef, ...]
    decisions: int
    oldest_decision: int | None
    letters: Mapping[str, int] = field(default_factory=dict)


def take(connection: Connection, now: int) -> Census:
    """One transaction's view of it."""
    is_open = runs.c.ended_at.is_(None)
    open_runs = connection.execute(select(func.count(), func.min(runs.c.accepted_at)).where(is_open)).one()
    late = select(runs.c.run_id, runs.c.session).where(is_open, runs.c.accepted_at + runs.c.deadline_ms < now)
    waiting = select(func.count(), func.min(decisions.c.created_at)).where(decisions.c.done_at.is_(None))
    orders = connection.execute(waiting).one()
    is_letter_open = dead_letters.c.status == DeadLetterStatus.OPEN
    counted = select(dead_letters.c.kind, func.count()).where(is_letter_open).group_by(dead_letters.c.kind)
    return Census(
        open_runs=open_runs[0],
        oldest_run=open_runs[1],
        overdue=tuple(RunRef(*row) for row in connection.execute(late.limit(SHOWN))),
        decisions=orders[0],
        oldest_decision=orders[1],
        letters={row.kind: row[1] for row in connection.execute(counted)},
    )
