"""What came late: the effect of an attempt whose claim somebody else had ended, and judged, before.

A row of kind "late" is made or set back by whoever learns of it, in the same transaction. Undoing it is owed until the
row has landed or is closed. Its fences count rounds: what comes late while an earlier one is being undone is noted in
the same row (`late`), and owed as a round of its own when that one is over; an old round can end no newer one.

Beginning to undo the step itself takes over what has come until then: that undo will find it outside.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, and_, select, text, update

from orchestrator.ledger.effect_row import Effect, Transaction, locked_row, over
from orchestrator.ledger.tables import OWED_LATE, EffectState, effects, runs


@dataclass(frozen=True, slots=True)
class Late:
    """What came late and is not undone yet.

    fence: of the round, beyond those of earlier ones; since: the fence that began to undo it, 0: nobody has;
    updated_at: when that was, or when it was last looked at; sure: a landing was refused, else its attempt ended in
    another way.
    """

    run_id: str
    step_id: str
    fence: int
    since: int
    updated_at: int
    sure: bool

    @property
    def begun(self) -> bool:
        """Whether a worker began to undo it."""
        return self.since > 0


class LateRows:
    """The rows of kind "late" of a ledger. A method that takes a connection is a part of the caller's transaction."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int], table: Table = effects) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock
        self._table = table

    def owed(self, untouched_since: int, limit: int, namespace: str) -> list[Late]:
        """Up to `limit` late effects that are to be undone, those first that nobody has touched for longest. Those of
        runs that another namespace has accepted are its own business."""
        theirs = select(runs.c.run_id).where(
            runs.c.run_id == self._table.c.run_id, runs.c.namespace.not_in((namespace, ""))
        )
        query = self._query().where(self._table.c.updated_at <= untouched_since, ~theirs.exists())
        query = query.order_by(self._table.c.updated_at)
        with self._read() as connection:
            return [_late(row) for row in connection.execute(query.limit(limit))]

    def of(self, run_id: str, step_id: str) -> Late | None:
        """What is owed of one step."""
        with self._read() as connection:
            row = connection.execute(self._query().where(self._effect(run_id, step_id).matches())).one_or_none()
        return None if row is None else _late(row)

    def refused(self, run_id: str) -> frozenset[str]:
        """The steps of a run of which a landing was refused, whatever became of it then."""
        column = self._table.c
        query = select(column.step_id).where(column.run_id == run_id, column.kind == "do", column.late)
        with self._read() as connection:
            return frozenset(connection.execute(query).scalars())

    def postpone(self, late: Late) -> None:
        """Somebody has looked at it; nobody else needs to for a while."""
        with self._begin() as connection:
            self._write(connection, self._effect(late.run_id, late.step_id))

    def end(self, late: Late) -> bool:
        """Nobody has to undo it any more. False: it has moved on since it was looked at, and nothing was written."""
        effect = self._effect(late.run_id, late.step_id)
        with self._begin() as connection:
            row = locked_row(connection, effect, None)
            since = row.since if row.state == EffectState.OPEN else 0
            if not is_owed(row) or since != late.since or over(row) >= late.fence:
                return False
            self._write(connection, effect, closed_to=late.fence)
            self.next_round(connection, effect, row, late.fence)
        return True

    def owe(self, connection: Connection, run_id: str, step_id: str) -> None:
        """Something came late. Whoever is undoing an earlier one just now may have looked before this was there."""
        effect = self._effect(run_id, step_id)
        row = locked_row(connection, effect, None)
        if is_owed(row) and row.state == EffectState.OPEN:
            self._write(connection, effect, late=True)
        else:
            self._owe_beyond(connection, effect, max(row.closed_to, row.landed_by))

    def next_round(self, connection: Connection, effect: Effect, before: Row[Any], fence: int) -> None:
        """A round ended with this fence. before: the row when it did; what came meanwhile is owed now."""
        if before.late:
            self._owe_beyond(connection, effect, fence)

    def take_over(self, connection: Connection, run_id: str, step_id: str, fence: int) -> None:
        """The step is being undone from now on, and with it what came until now and nobody undoes yet."""
        unbegun = (self._table.c.state == EffectState.NONE, self._table.c.closed_to == 0)
        query = update(self._table).where(self._effect(run_id, step_id).matches(), *unbegun)
        connection.execute(query.values(closed_to=fence, updated_at=self._clock()))

    def _owe_beyond(self, connection: Connection, effect: Effect, fence: int) -> None:
        blank = {"state": EffectState.NONE, "since": 0, "closed_to": 0, "late": False, "result_text": None}
        self._write(connection, effect, landed_by=fence, **blank)

    def _effect(self, run_id: str, step_id: str) -> Effect:
        return Effect(run_id, step_id, "late", self._table)

    def _query(self) -> Select[Any]:
        mine, done = self._table, self._table.alias("done")
        same = and_(done.c.run_id == mine.c.run_id, done.c.step_id == mine.c.step_id, done.c.kind == "do")
        fence = select(done.c.closed_to).where(same).scalar_subquery().label("ended")
        sure = select(done.c.late).where(same).scalar_subquery().label("sure")
        column = mine.c
        found = select(
            column.run_id, column.step_id, column.state, column.since, column.landed_by, column.updated_at, fence, sure
        )
        # the index's own words, without parameters: only so a database sees that it fits
        return found.where(text(OWED_LATE))

    def _write(self, connection: Connection, effect: Effect, **values: Any) -> None:
        connection.execute(update(self._table).where(effect.matches()).values(updated_at=self._clock(), **values))


def is_owed(row: Row[Any]) -> bool:
    """Whether a row of kind "late" asks for something to be undone; a row's query says the same in OWED_LATE."""
    return bool(row.state != EffectState.LANDED and row.closed_to == 0)


def _late(row: Row[Any]) -> Late:
    since = row.since if row.state == EffectState.OPEN else 0
    fence = since or max(row.ended or 0, row.landed_by + 1)
    return Late(row.run_id, row.step_id, fence, since, row.updated_at, bool(row.sure))
