"""One effect row: its names, and how it is locked and written. What may be done to it is said in effects and late."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, insert, select

from orchestrator.errors import EffectRefused
from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.tables import EffectState, ends_told

Kind = Literal["do", "undo", "late"]
Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Effect:
    """The names of one effect, and the table that has its row."""

    run_id: str
    step_id: str
    kind: Kind
    table: Table

    def blank(self) -> dict[str, Any]:
        """The values of a row nobody has touched."""
        return {
            "run_id": self.run_id,
            "step_id": self.step_id,
            "kind": self.kind,
            "state": EffectState.NONE,
            "since": 0,
            "closed_to": 0,
            "landed_by": 0,
            "late": False,
            "token": None,
            "result_text": None,
            "updated_at": 0,
        }

    def matches(self) -> ColumnElement[bool]:
        column = self.table.c
        return and_(column.run_id == self.run_id, column.step_id == self.step_id, column.kind == self.kind)


def locked_row(connection: Connection, effect: Effect, token: str | None) -> Row[Any]:
    """The row of an effect, locked until the transaction ends and made if it was not there."""
    insert_absent(connection, effect.table, effect.blank())
    row = connection.execute(select(effect.table).where(effect.matches()).with_for_update()).one()
    if token is not None:
        check_token(effect, row, token)
    return row


def check_token(effect: Effect, row: Row[Any], token: str) -> None:
    """EffectRefused if the row was written for another action or other params."""
    if row.token is not None and row.token != token:
        message = f"step {effect.step_id} of run {effect.run_id} left an effect of another token, {row.token}"
        raise EffectRefused(message, path=effect.step_id, hint="the plan was changed under a run: start a new one")


def heard(connection: Connection, effect: Effect, fence: int) -> bool | None:
    """Whether what this fence told of its own end was late; None: it has told nothing."""
    column = ends_told.c
    mine = and_(column.run_id == effect.run_id, column.step_id == effect.step_id, column.kind == effect.kind)
    return connection.execute(select(column.late).where(mine, column.fence == fence)).scalar_one_or_none()


def hear(connection: Connection, effect: Effect, fence: int, *, late: bool) -> None:
    """It tells it now; under the lock on its row."""
    named = {"run_id": effect.run_id, "step_id": effect.step_id, "kind": effect.kind, "fence": fence}
    connection.execute(insert(ends_told).values(**named, late=late))


def over(row: Row[Any]) -> int:
    """The newest fence that can do nothing more: its claim was ended, or what it landed was owed once more since."""
    return int(row.closed_to if row.state == EffectState.LANDED else max(row.closed_to, row.landed_by))
