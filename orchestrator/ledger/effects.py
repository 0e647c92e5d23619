"""Effect rows: may an effect start, and did it happen. One row per (run, step, kind); kind is "do" or "undo",
or "late" for the undoing of what happened after its claim had been ended.

A row remembers `since` (the fence that opened it), `closed_to` (the newest fence whose claim was ended), `landed_by`,
the step's token and the first result. Fences at or below `closed_to` are refused everything: their claim is over,
and what they left behind has already been judged. Each call is one short transaction, or a part of the one it is given.

    open   none -> open; open stays open for a class whose other side knows the idempotency key
    land   any  -> landed, with the result; refused after the close, and then remembered as late
    close  raises closed_to and says what it found; with `void` an open row of this very fence goes back to none
    leave  the same by the attempt itself, whose effect may be out; after somebody else's close it is late
    found  after the close: somebody looked outside. open -> landed, or -> none where only this fence had opened it
    set_aside  the run is started over: landed -> none where a person wants the effect once more

What is late is owed in the same transaction; see orchestrator.ledger.late.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, and_, exists, select, update

from orchestrator.ledger.answers import (
    AlreadyLanded,
    AlreadyOpen,
    Closed,
    Fresh,
    Landed,
    NotClosed,
    Opened,
    RowClosed,
)
from orchestrator.ledger.effect_row import Effect, Kind, Transaction, check_token, hear, heard, locked_row, over
from orchestrator.ledger.late import LateRows
from orchestrator.ledger.tables import EffectState, effects
from schemas.states import EffectClass, Fact

BLANK: Final = {"state": EffectState.NONE, "since": 0, "landed_by": 0, "result_text": None}


class EffectRows:
    """The effect rows of a ledger.

    A repeat of open or close by the same fence answers by the row as it stands; land repeated by the fence that landed
    answers AlreadyLanded with its own result, also after a close. A refused land and a leave that are repeated, because
    nobody heard whether they were committed, are heard once. A crash inside any call leaves the row as it was.
    """

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int], table: Table = effects) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock
        self._table = table
        self.late = LateRows(begin, read, clock, table)

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

    def state(self, run_id: str, step_id: str, kind: Kind) -> EffectState:
        """What is known of an effect; nothing, where it has no row."""
        with self._read() as connection:
            query = select(self._table.c.state).where(self._effect(run_id, step_id, kind).matches())
            return EffectState(connection.execute(query).scalar() or EffectState.NONE)

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
                if kind == "undo" and row.state == EffectState.NONE:  # a repeat under the same key may do nothing more
                    self.late.take_over(connection, run_id, step_id, fence)
        return answer

    def begin_undo(self, run_id: str, step_id: str, fence: int) -> None:
        """Say that an idempotent undo begins. It opens no row, and does all there is to do each time."""
        with self._begin() as connection:
            locked_row(connection, self._effect(run_id, step_id, "undo"), None)
            self.late.take_over(connection, run_id, step_id, fence)

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
        the row late: it happened after its claim had been ended and judged. What undoes a late one is not late itself:
        whoever ended its claim has told a person.
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
            if isinstance(answer, Closed) and kind != "late" and heard(own, effect, fence) is None:
                self._refused(own, effect, fence)
        return answer

    def close(
        self, run_id: str, step_id: str, kind: Kind, fence: int, void: bool = False, token: str | None = None
    ) -> RowClosed:
        """End what a fence may do, and learn what it did. Done by whoever ends a claim that has no commit,
        before the store is told. Afterwards neither this fence nor an older one can open or land.

        void: the action raised NoEffect. Believed only from the fence that opened the row, and only by its first close.
        token: of the step, where it is known. EffectRefused: the row belongs to another one.
        """
        effect = self._effect(run_id, step_id, kind)
        with self._begin() as connection:
            return self._close(connection, effect, locked_row(connection, effect, token), fence, void)

    def leave(self, run_id: str, step_id: str, kind: Kind, fence: int, void: bool = False) -> RowClosed:
        """The attempt itself ends, without a landing though its effect may be out. As close; but where somebody else
        closed before, a step was judged without that effect, and it is late. Not if the row holds it after all, nor
        if another attempt landed, whose effect is then this one as well, unless it is being taken back. An undo is
        never late: it is tried again under the same key, or there is a letter.

        void: the action raised NoEffect.
        """
        effect = self._effect(run_id, step_id, kind)
        with self._begin() as connection:
            row = locked_row(connection, effect, None)
            told = heard(connection, effect, fence)
            if told is not None:
                return RowClosed(EffectState(row.state), row.result_text, told)
            if fence > row.closed_to:
                hear(connection, effect, fence, late=False)
                return self._close(connection, effect, row, fence, void)
            late = kind == "do" and not void and self._may_be_out(connection, effect, row, fence)
            hear(connection, effect, fence, late=late)
            if late:
                self.late.owe(connection, run_id, step_id)
        return RowClosed(EffectState(row.state), row.result_text, late)

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
        """Settle by somebody's word what became of an effect. fence: of the step's newest claim, which has ended. Where
        that was before it began, nobody has closed it; it is closed here.

        A row that landed stays so, with its first result, whatever is said. A repeat answers the same. A part of the
        caller's transaction. EffectRefused: the row belongs to another step token.
        """
        effect = self._effect(run_id, step_id, "do")
        row = locked_row(connection, effect, token)
        if row.since > fence:
            return NotClosed(row.since, row.closed_to)
        closed_to = max(row.closed_to, fence)
        if row.state == EffectState.LANDED:
            self._write(connection, effect, closed_to=closed_to)
            return RowClosed(EffectState.LANDED, row.result_text)
        if landed:
            said = {"state": EffectState.LANDED, "landed_by": fence, "token": token, "result_text": result_text}
            self._write(connection, effect, closed_to=closed_to, **said)
            return RowClosed(EffectState.LANDED, result_text)
        self._write(connection, effect, state=EffectState.NONE, since=0, closed_to=closed_to)
        return RowClosed(EffectState.NONE, None)

    def landed(self, run_id: str) -> dict[str, str]:
        """The tokens of a run's steps whose effects have landed, by step."""
        column = self._table.c
        mine = and_(column.run_id == run_id, column.kind == "do", column.state == EffectState.LANDED)
        with self._read() as connection:
            return {
                row.step_id: row.token for row in connection.execute(select(column.step_id, column.token).where(mine))
            }

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

    def _refused(self, connection: Connection, effect: Effect, fence: int) -> None:
        hear(connection, effect, fence, late=True)
        self._write(connection, effect, late=True)
        if effect.kind == "do":
            self.late.owe(connection, effect.run_id, effect.step_id)

    def _close(
        self, connection: Connection, effect: Effect, row: Row[Any], fence: int, void: bool = False
    ) -> RowClosed:
        if effect.kind == "late" and fence <= over(row):  # a round that is over ends no other
            return RowClosed(EffectState(row.state), row.result_text)
        state = EffectState.NONE if void and may_void(row, fence) else EffectState(row.state)
        since = row.since if state is EffectState.OPEN else 0
        self._write(connection, effect, state=state, since=since, closed_to=max(row.closed_to, fence))
        if effect.kind == "late":
            self.late.next_round(connection, effect, row, fence)
        return RowClosed(state, row.result_text)

    def _may_be_out(self, connection: Connection, effect: Effect, row: Row[Any], fence: int) -> bool:
        if row.state != EffectState.LANDED:
            return True
        return row.landed_by != fence and self._is_taken_back(connection, effect)

    def _is_taken_back(self, connection: Connection, effect: Effect) -> bool:
        undo = self._effect(effect.run_id, effect.step_id, "undo")
        return bool(connection.execute(select(exists().where(undo.matches()))).scalar())

    def _land(
        self, connection: Connection, effect: Effect, fence: int, token: str, result_text: str
    ) -> Landed | AlreadyLanded | Closed:
        row = locked_row(connection, effect, token)
        answer = refusal(row, fence)
        if answer is not None:
            return answer
        landed = {"state": EffectState.LANDED, "landed_by": fence, "token": token, "result_text": result_text}
        self._write(connection, effect, **landed)
        if effect.kind == "late":
            self.late.next_round(connection, effect, row, fence)
        return Landed()

    def _write(self, connection: Connection, effect: Effect, **values: Any) -> None:
        connection.execute(update(self._table).where(effect.matches()).values(updated_at=self._clock(), **values))


def refusal(row: Row[Any], fence: int) -> AlreadyLanded | Closed | None:
    """Why a fence may not land: closed first, but a landing repeated by its own fence is no stranger."""
    if fence <= over(row) and not (row.state == EffectState.LANDED and row.landed_by == fence):
        return Closed(over(row))
    return AlreadyLanded(row.result_text) if row.state == EffectState.LANDED else None


def may_open(row: Row[Any], fence: int, effect_class: EffectClass) -> Opened | AlreadyOpen | AlreadyLanded | Closed:
    """Whether a fence may start the effect of a row."""
    if fence <= over(row):
        return Closed(over(row))
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
