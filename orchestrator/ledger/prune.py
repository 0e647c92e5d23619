"""Letting go of what is old: runs that ended long ago with all that belongs to them, and letters. A batch a call."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Table, delete, select

from orchestrator.ledger.tables import DeliveryState, dead_letters, deliveries, letter_decisions, metadata, runs

# Letters have an age of their own, and are kept where their run has gone.
OF_A_RUN: Final[tuple[Table, ...]] = tuple(
    table for table in reversed(metadata.sorted_tables) if "run_id" in table.c and table not in (runs, dead_letters)
)


# Who asked to be told of an end is told, however long that takes.
_TOLD: Final = ~(
    select(deliveries.c.id)
    .where(deliveries.c.run_id == runs.c.run_id, deliveries.c.state == DeliveryState.PENDING)
    .exists()
)


def old_runs(connection: Connection, before: int, limit: int) -> list[str]:
    """Ids of up to `limit` runs that ended before a moment and of which all is told, oldest first."""
    query = select(runs.c.run_id).where(runs.c.ended_at < before, _TOLD).order_by(runs.c.ended_at, runs.c.run_id)
    return list(connection.execute(query.limit(limit)).scalars())


def forget_runs(connection: Connection, run_ids: Sequence[str], before: int) -> int:
    """Delete these runs, but for those that have been started over meanwhile or whose end is to be told again; answers
    how many went.
    """
    still = select(runs.c.run_id).where(runs.c.run_id.in_(run_ids), runs.c.ended_at < before, _TOLD)
    held = list(connection.execute(still.order_by(runs.c.run_id).with_for_update()).scalars())
    # What became owed while this waited for the row is seen by the next statement only (PostgreSQL's READ COMMITTED).
    going = list(connection.execute(select(runs.c.run_id).where(runs.c.run_id.in_(held), _TOLD)).scalars())
    for table in (*OF_A_RUN, runs):
        connection.execute(delete(table).where(table.c.run_id.in_(going)))
    return len(going)


def forget_letters(connection: Connection, before: int, limit: int) -> int:
    """Delete up to `limit` letters that were written before a moment, with what was decided about them; answers how
    many went. One about which something is still to be done stays."""
    waits = select(letter_decisions.c.id).where(
        letter_decisions.c.letter_id == dead_letters.c.id, letter_decisions.c.done_at.is_(None)
    )
    old = select(dead_letters.c.id).where(dead_letters.c.created_at < before, ~waits.exists())
    held = list(connection.execute(old.order_by(dead_letters.c.created_at).limit(limit).with_for_update()).scalars())
    # Whoever decided while this waited for the row is seen by the next statement only (PostgreSQL's READ COMMITTED).
    still = select(dead_letters.c.id).where(dead_letters.c.id.in_(held), ~waits.exists())
    going = list(connection.execute(still).scalars())
    connection.execute(delete(letter_decisions).where(letter_decisions.c.letter_id.in_(going)))
    return connection.execute(delete(dead_letters).where(dead_letters.c.id.in_(going))).rowcount
