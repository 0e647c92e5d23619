"""Effect rows: may an effect start, and did it happen. One row per (run, step, kind); kind is "do" or "undo",
or "late" for the undoing of what happened after the step had been undone.

A row remembers `since` (the fence that opened it), `closed_to` (the newest fence whose claim was ended), `landed_by`,
the step's token and the first result. Fences at or below `closed_to` are refused everything: their claim is over,
and what they left behind has already been judged. Each call is one short transaction, or a part of the one it is given.

    open   none -> open; open stays open for a class whose other side knows the idempotency key
    land   any  -> landed, with the result; refused after the close, and then remembered as late
    close  raises closed_to and says what it found; with `void` an open row of this very fence goes back to none
    found  after the close: somebody looked outside. open -> landed, or -> none where only this fence had opened it
    set_aside  the run is started over: landed -> none where a person wants the effect once more

A late landing makes the row of kind "late" in the same transaction. Undoing it is owed until that row has landed, or is
closed because there is nothing to undo, or nobody can.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, select, text, update

from orchestrator.errors import EffectRefused
from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.tables import OWED_LATE, EffectState, effects
from schemas.states import EffectClass, Fact

Kind = Literal["do", "undo", "late"]
Transaction = Callable[[], AbstractContextManager[Connection]]
BLANK: Final = {"state": EffectState.NONE, "since": 0, "landed_by": 0, "result_text": None}


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing has landed and this fence is not closed: the effect may be done."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The effect may start now; from here on it may have happened."""


@dataclass(frozen=True, slots=True)
class AlreadyOpen:
    """An effect that must not start twice was started by the fence `since`."""

    since: int


@dataclass(frozen=True, slots=True)
class Landed:
    """The row holds this call's result."""


@dataclass(frozen=True, slots=True)
class AlreadyLanded:
    """It happened before; result_text is the first result, as JSON."""

    result_text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The claim of this fence was ended; the newest fence that was is closed_to."""

    closed_to: int


@dataclass(frozen=True, slots=True)
class RowClosed:
    """What close found: the state, and the result where the state is landed."""

    state: EffectState
    result_text: str | None


@dataclass(frozen=True, slots=True)
class NotClosed:
    """A claim of the step is newer than the one that was asked about, or has not been ended: nothing was written."""

    since: int
    closed_to: int


@dataclass(frozen=True, slots=True)
class Late:
    """An effect that came late and is not undone yet. fence: up to which its claims were closed; begun: its undoing
    began at some time; updated_at: when that was, or when it was last looked at."""

    run_id: str
    step_id: str
    fence: int
    begun: bool
    updated_at: int


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


class EffectRows:
    """The effect rows of a ledger.

    A repeat of open or close by the same fence answers by the row as it stands; land repeated by the fence that landed
    answers AlreadyLanded with its own result, also after a close. A crash inside any call leaves the row as it was.
    """

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int], table: Table = effects) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock
        self._table = table

    def _effect(self, run_id: str, step_id: str, kind: Kind) -> Effect:
        return Effect(run_id, step_id, kind, self._table)

    def look(self, run_id: str, step_id: str, kind: Kind, fence: int, token: str) -> Fresh | AlreadyLanded | Closed:
        """What `land` would meet now. Changes nothing and promises nothing: only `land` decides."""
        effect = self._effect(run_id, step_id, kind)
        with self._read() as connection:
            row = connection.execute(select(self._table).where(effect.matches())).one_or_none()
        if row is None:
            return Fresh()
        check_token(effect, row, token)
        return refusal(row, fence) or Fresh()

    def open(
        self, run_id: str, step_id: str, kind: Kind, fence: int, token: str, effect_class: EffectClass
    ) -> Opened | AlreadyOpen | AlreadyLanded | Closed:
        """Ask to start an effect. Only a keyed effect may be started again while it is open.

        EffectRefused: the row belongs to another step token.
        """
        effect = self._effect(run_id, step_id, kind)
        with self._begin() as connection:
            row = locked_row(connection, effect, token)
            answer = may_open(row, fence, effect_class)
            if isinstance(answer, Opened):
                since = row.since if row.state == EffectState.OPEN else fence
                self._write(connection, effect, state=EffectState.OPEN, since=since, token=token)
        return answer

    def land(
        self,
        run_id: str,
        step_id: str,
        kind: Kind,
        fence: int,
        token: str,
        result_text: str,
        connection: Connection | None = None,
    ) -> Landed | AlreadyLanded | Closed:
        """Record that an effect happened, with its result (JSON); the first result stays.

        Without a connection: a transaction of its own. The effect is in the world by now, so a refusal (Closed) marks
        the row late: it happened after its claim had been ended and judged.
        With a connection: a part of the caller's transaction, which must hold the effect too and which the caller ends.
        On AlreadyLanded and Closed the caller must roll back, and then nothing has happened.
        EffectRefused: the row belongs to another step token; roll back as well. That the connection leads to the
        database of these rows, TransactionalRows has seen to.
        """
        effect = self._effect(run_id, step_id, kind)
        if connection is not None:
            return self._land(connection, effect, fence, token, result_text)
        with self._begin() as own:
            answer = self._land(own, effect, fence, token, result_text)
            if isinstance(answer, Closed):
                self._write(own, effect, late=True)
                self._owe(own, effect)
        return answer

    def close(self, run_id: str, step_id: str, kind: Kind, fence: int, void: bool = False) -> RowClosed:
        """End what a fence may do, and learn what it did. Done by whoever ends a claim that has no commit,
        before the store is told. Afterwards neither this fence nor an older one can open or land.

        void: the action raised NoEffect. Believed only from the fence that opened the row, and only by its first close.
        """
        effect = self._effect(run_id, step_id, kind)
        with self._begin() as connection:
            row = locked_row(connection, effect, None)
            state = EffectState.NONE if void and may_void(row, fence) else EffectState(row.state)
            since = row.since if state is EffectState.OPEN else 0
            self._write(connection, effect, state=state, since=since, closed_to=max(row.closed_to, fence))
        return RowClosed(state, row.result_text)

    def answer(
        self,
        run_id: str,
        step_id: str,
        fence: int,
        token: str,
        landed: bool,
        result_text: str,
        connection: Connection,
    ) -> RowClosed | NotClosed:
        """Settle by somebody's word what became of an effect. fence: of the step's newest claim, which must be closed.

        A row that landed stays so, with its first result, whatever is said. A repeat answers the same. A part of the
        caller's transaction. EffectRefused: the row belongs to another step token.
        """
        effect = self._effect(run_id, step_id, "do")
        row = locked_row(connection, effect, token)
        if not row.since <= fence <= row.closed_to:
            return NotClosed(row.since, row.closed_to)
        if row.state == EffectState.LANDED:
            return RowClosed(EffectState.LANDED, row.result_text)
        if landed:
            said = {"state": EffectState.LANDED, "landed_by": fence, "token": token, "result_text": result_text}
            self._write(connection, effect, **said)
            return RowClosed(EffectState.LANDED, result_text)
        self._write(connection, effect, state=EffectState.NONE, since=0)
        return RowClosed(EffectState.NONE, None)

    def landed(self, run_id: str) -> dict[str, str]:
        """The tokens of a run's steps whose effects have landed, by step."""
        column = self._table.c
        mine = and_(column.run_id == run_id, column.kind == "do", column.state == EffectState.LANDED)
        with self._read() as connection:
            return {
                row.step_id: row.token for row in connection.execute(select(column.step_id, column.token).where(mine))
            }

    def is_late(self, run_id: str, step_id: str) -> bool:
        """Whether an effect of the step happened after its claim had been ended."""
        with self._read() as connection:
            query = select(self._table.c.late).where(self._effect(run_id, step_id, "do").matches())
            return bool(connection.execute(query).scalar())

    def owed_late(self, untouched_since: int, limit: int) -> list[Late]:
        """Up to `limit` late effects that are to be undone, those first that nobody has touched for longest."""
        effects = self._table
        done = effects.alias("done")
        same = and_(done.c.run_id == effects.c.run_id, done.c.step_id == effects.c.step_id, done.c.kind == "do")
        fence = select(done.c.closed_to).where(same).scalar_subquery()
        # the index's own words, without parameters: only so a database sees that it fits
        query = select(effects.c.run_id, effects.c.step_id, fence, effects.c.state, effects.c.updated_at)
        owed = query.where(text(OWED_LATE), effects.c.updated_at <= untouched_since).order_by(effects.c.updated_at)
        with self._read() as connection:
            rows = connection.execute(owed.limit(limit)).all()
        return [Late(run_id, step_id, to, state == EffectState.OPEN, at) for run_id, step_id, to, state, at in rows]

    def postpone_late(self, run_id: str, step_id: str) -> None:
        """Somebody has looked at it; nobody else needs to for a while."""
        with self._begin() as connection:
            self._write(connection, self._effect(run_id, step_id, "late"))

    def found(self, run_id: str, step_id: str, kind: Kind, fence: int, result_text: str | None) -> RowClosed:
        """Write down what became of an open effect whose claim was ended: its result (JSON), or None: it did not
        happen and can no more. Answers the row as it stands then.

        Only a row that is closed up to this very fence is set back to none, and only if this fence opened it: what an
        earlier one has under way is not known.
        """
        effect = self._effect(run_id, step_id, kind)
        with self._begin() as connection:
            row = locked_row(connection, effect, None)
            if row.state == EffectState.OPEN and result_text is not None:
                landed = {"state": EffectState.LANDED, "since": 0, "landed_by": fence, "result_text": result_text}
                self._write(connection, effect, **landed)
                return RowClosed(EffectState.LANDED, result_text)
            if row.state == EffectState.OPEN and row.since == fence == row.closed_to:
                self._write(connection, effect, state=EffectState.NONE, since=0)
                return RowClosed(EffectState.NONE, None)
        return RowClosed(EffectState(row.state), row.result_text)

    def set_aside(self, run_id: str, step_ids: Sequence[str], anew: Collection[str], fence: int) -> None:
        """Close the rows of these steps up to `fence`, the newest of their run, whose claims have all ended; and set
        those that are to be had `anew` back to none. A row that a newer fence has touched is left as it is.
        """
        with self._begin() as connection:
            for step_id in step_ids:
                effect = self._effect(run_id, step_id, "do")
                row = locked_row(connection, effect, None)
                if max(row.since, row.landed_by) <= fence:
                    undone = step_id in anew and row.state == EffectState.LANDED
                    self._write(connection, effect, closed_to=max(row.closed_to, fence), **(BLANK if undone else {}))

    def _owe(self, connection: Connection, effect: Effect) -> None:
        """Remember that a late effect is to be undone; also if another one of the step was before."""
        late = self._effect(effect.run_id, effect.step_id, "late")
        if effect.kind == "do" and locked_row(connection, late, None).state != EffectState.OPEN:
            self._write(connection, late, state=EffectState.NONE, since=0, closed_to=0)

    def _land(
        self, connection: Connection, effect: Effect, fence: int, token: str, result_text: str
    ) -> Landed | AlreadyLanded | Closed:
        row = locked_row(connection, effect, token)
        answer = refusal(row, fence)
        if answer is not None:
            return answer
        landed = {"state": EffectState.LANDED, "landed_by": fence, "token": token, "result_text": result_text}
        self._write(connection, effect, **landed)
        return Landed()

    def _write(self, connection: Connection, effect: Effect, **values: Any) -> None:
        connection.execute(update(self._table).where(effect.matches()).values(updated_at=self._clock(), **values))


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


def refusal(row: Row[Any], fence: int) -> AlreadyLanded | Closed | None:
    """Why a fence may not land: closed first, but a landing repeated by its own fence is no stranger."""
    if fence <= row.closed_to and not (row.state == EffectState.LANDED and row.landed_by == fence):
        return Closed(row.closed_to)
    return AlreadyLanded(row.result_text) if row.state == EffectState.LANDED else None


def may_open(row: Row[Any], fence: int, effect_class: EffectClass) -> Opened | AlreadyOpen | AlreadyLanded | Closed:
    """Whether a fence may start the effect of a row."""
    if fence <= row.closed_to:
        return Closed(row.closed_to)
    if row.state == EffectState.LANDED:
        return AlreadyLanded(row.result_text)
    if row.state == EffectState.OPEN and effect_class is not EffectClass.KEYED:
        return AlreadyOpen(row.since)
    return Opened()


def may_void(row: Row[Any], fence: int) -> bool:
    """Whether this fence, at its first close, may take back that it opened the row."""
    return bool(row.state == EffectState.OPEN and row.since == fence and fence > row.closed_to)


def fact(effect_class: EffectClass, row_state: EffectState, no_effect: bool = False) -> Fact:
    """What a closed row proves about the claim that was ended.

    An idempotent action opens no row, so `none` says nothing about it, unless it raised NoEffect itself.
    """
    if row_state is EffectState.NONE and effect_class is EffectClass.IDEMPOTENT and not no_effect:
        return Fact.MAYBE
    return {EffectState.NONE: Fact.NONE, EffectState.OPEN: Fact.MAYBE, EffectState.LANDED: Fact.LANDED}[row_state]
