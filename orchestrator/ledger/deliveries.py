"""Telling the ends of runs: which are owed, who has one in hand, and what came of it.

The row is written with the end of the run (writes.owe_delivery). `take` gives a few of those that are due to whoever
sends messages; `claim` gives one to whoever posts it, and counts the attempt, which from then on names the claim: of
several only one has it. Whoever dies with one in hand holds it until its time is over. A run's end may be told twice
therefore, always under the same id.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, TextClause, and_, case, func, or_, select, text, update

from orchestrator.ledger import letters
from orchestrator.ledger.effect_row import Transaction
from orchestrator.ledger.tables import OWED_DELIVERIES, DeliveryState, deliveries, runs
from schemas.dead_letter import DeadLetter

AT_ONCE: Final = 10  # of one host that are in hand: nobody knows of one that is silent before it was asked
TROUBLED_AT_ONCE: Final = 2  # of one that keeps its callers waiting: others have the children that are left
TROUBLE_MS: Final = 60_000  # for so long after such an attempt, unless the host has answered since
SLOW: Final = ("timeout", "unreachable")  # words of errors that cost an attempt all of its time


@dataclass(frozen=True, slots=True)
class Due:
    """One to be posted now. attempts: that were begun before; whoever claims it says so."""

    id: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """The row; see the table. In the hand of a claim, `attempts` counts that one, too."""

    id: str
    run_id: str
    generation: int
    url: str
    body_text: str
    state: DeliveryState
    attempts: int
    attempts_before: int
    due_at: int
    status_code: int | None
    error: str | None
    created_at: int
    done_at: int | None

    @property
    def number(self) -> int:
        """Which attempt of its round this is."""
        return self.attempts - self.attempts_before


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. status_code: of the answer, None: there was none; error: a word; due_at: of the next
    attempt, ms since the epoch, where the state is pending.
    """

    state: DeliveryState
    status_code: int | None = None
    error: str | None = None
    due_at: int | None = None


class Deliveries:
    """The ledger's rows about callbacks."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int]) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock

    def is_any_due(self, namespace: str) -> bool:
        """Whether there is something to take; asked far oftener than there is."""
        return self._is_any(_of(namespace), *_is_free(self._clock()))

    def is_any_owed(self, namespace: str) -> bool:
        """Whether any end is still to be told, now or later."""
        return self._is_any(_of(namespace))

    def _is_any(self, *wanted: ColumnElement[bool] | TextClause) -> bool:
        with self._read() as connection:
            return connection.execute(select(deliveries.c.id).where(*wanted).limit(1)).first() is not None

    def take(self, namespace: str, most: int, hold_ms: int) -> list[Due]:
        """Up to `most` that are due and that nobody has in hand, the oldest, in any order. Nobody else is given them
        for `hold_ms`.

        Of one host only a few are in hand at a time, and still fewer of one that did not answer. Repeated after a crash
        behind it, those of before come again when their time is over.
        """
        now = self._clock()
        with self._begin() as connection:
            chosen = _choose(connection, namespace, most, now)
            mine = _locked(connection, deliveries.c.id.in_(chosen), *_is_free(now)) if chosen else []
            taken = update(deliveries).where(deliveries.c.id.in_(mine)).values(taken_until=now + hold_ms)
            found = connection.execute(taken.returning(deliveries.c.id, deliveries.c.attempts)) if mine else ()
            return [Due(*row) for row in found]

    def claim(self, due: Due, hold_ms: int) -> Delivery | None:
        """The delivery, for one attempt. None: somebody else has begun this one, or nothing is owed any more."""
        mine = update(deliveries).where(*_is_at(due.id, due.attempts))
        begun = mine.values(attempts=due.attempts + 1, taken_until=self._clock() + hold_ms)
        with self._begin() as connection:
            row = connection.execute(begun.returning(*_columns())).mappings().one_or_none()
        return _as_delivery(row)

    def note(self, delivery: Delivery, outcome: Outcome) -> bool:
        """What came of a claim's attempt. False: the claim was over, and somebody else's word counts. That it was
        delivered is true whoever says so, of the round that it was an attempt of, even if that was given up meanwhile.
        """
        with self._begin() as connection:
            return self._note(connection, delivery, outcome)

    def give_up(
        self, delivery: Delivery, outcome: Outcome, letter: DeadLetter, dedup_key: str, namespace: str
    ) -> str | None:
        """The same for the last attempt, together with the letter about it; answers the id of that. None: the claim was
        over, and there is no letter."""
        with self._begin() as connection:
            noted = self._note(connection, delivery, outcome)
            return letters.write(connection, letter, dedup_key, namespace) if noted else None

    def _note(self, connection: Connection, delivery: Delivery, outcome: Outcome) -> bool:
        is_over, now = outcome.state is not DeliveryState.PENDING, self._clock()
        values = {
            "state": outcome.state,
            "status_code": outcome.status_code,
            "error": outcome.error,
            "taken_until": now,
            "done_at": now if is_over else None,
        }
        if outcome.due_at is not None:
            values["due_at"] = outcome.due_at
        is_delivered = outcome.state is DeliveryState.DELIVERED
        mine = _is_of_round(delivery) if is_delivered else _is_at(delivery.id, delivery.attempts)
        if connection.execute(update(deliveries).where(*mine).values(**values)).rowcount != 1:
            return False
        if outcome.status_code is not None and outcome.state is not DeliveryState.GIVEN_UP:  # that may be of long ago
            _trust(connection, delivery)
        return True

    def send_again(self, delivery_id: str, given_up_after: int | None = None) -> bool:
        """Owe it anew, with a full round of attempts. given_up_after: only what was given up after so many attempts, so
        that a repeat changes nothing. False: nothing was changed, for it is owed already, or there is none."""
        over = [deliveries.c.id == delivery_id, deliveries.c.state != DeliveryState.PENDING]
        if given_up_after is not None:
            over += [deliveries.c.state == DeliveryState.GIVEN_UP, deliveries.c.attempts == given_up_after]
        anew = {"state": DeliveryState.PENDING, "due_at": self._clock(), "taken_until": 0, "done_at": None}
        anew |= {"attempts_before": deliveries.c.attempts, "status_code": None, "error": None}
        with self._begin() as connection:
            _hold_run_of(connection, delivery_id)
            return connection.execute(update(deliveries).where(*over).values(anew)).rowcount == 1

    def one(self, delivery_id: str) -> Delivery | None:
        """The delivery of this id; None: there is none."""
        return self._first(deliveries.c.id == delivery_id)

    def newest_of(self, run_id: str) -> Delivery | None:
        """That of the newest end of a run that is known to the ledger."""
        return self._first(deliveries.c.run_id == run_id)

    def _first(self, wanted: ColumnElement[bool]) -> Delivery | None:
        query = select(*_columns()).where(wanted).order_by(deliveries.c.generation.desc()).limit(1)
        with self._read() as connection:
            return _as_delivery(connection.execute(query).mappings().one_or_none())


def _hold_run_of(connection: Connection, delivery_id: str) -> None:
    """Whoever lets go of old runs holds theirs, too: what is owed anew is not deleted by one that saw it told."""
    run_id = select(deliveries.c.run_id).where(deliveries.c.id == delivery_id).scalar_subquery()
    connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update())


# ---- which are taken


def _choose(connection: Connection, namespace: str, most: int, now: int) -> list[str]:
    """Ids of rows that are due, host by host in turn, so that one with many does not come before all others."""
    host, taken_until, in_turn = deliveries.c.host, deliveries.c.taken_until, (deliveries.c.due_at, deliveries.c.id)
    is_of_now = or_(deliveries.c.due_at <= now, taken_until > now - TROUBLE_MS)
    is_free = and_(deliveries.c.due_at <= now, taken_until <= now)
    in_hand = func.count().filter(taken_until > now).over(partition_by=host)
    is_troubled = func.count().filter(deliveries.c.error.in_(SLOW)).over(partition_by=host) > 0
    rows = select(
        *in_turn,
        is_free.label("is_free"),
        func.row_number().over(partition_by=(host, is_free), order_by=in_turn).label("nth"),
        (case((is_troubled, TROUBLED_AT_ONCE), else_=AT_ONCE) - in_hand).label("places"),
    )
    found = rows.where(_of(namespace), is_of_now).subquery().c
    chosen = select(found.id).where(found.is_free, found.nth <= found.places)
    return list(connection.execute(chosen.order_by(found.nth, found.due_at, found.id).limit(most)).scalars())


def _trust(connection: Connection, delivery: Delivery) -> None:
    """The host of this one answers: what else is owed to it need not be held back for the silence before."""
    told = select(deliveries.c.namespace, deliveries.c.host).where(deliveries.c.id == delivery.id)
    namespace, host = connection.execute(told).one()
    held_back = _locked(connection, _of(namespace), deliveries.c.host == host, deliveries.c.error.in_(SLOW))
    if held_back:
        connection.execute(update(deliveries).where(deliveries.c.id.in_(held_back)).values(error=None))


def _locked(connection: Connection, *wanted: ColumnElement[bool] | TextClause) -> list[str]:
    """Ids of rows that are ours until the transaction ends. Whoever changes several waits for none of them, so no two
    can wait for each other; what somebody else has in hand at the moment is left out.
    """
    ours = select(deliveries.c.id).where(*wanted).order_by(deliveries.c.id)
    return list(connection.execute(ours.with_for_update(skip_locked=True)).scalars())


def _of(namespace: str) -> ColumnElement[bool]:
    return and_(text(OWED_DELIVERIES), deliveries.c.namespace == namespace)


def _is_free(now: int) -> tuple[TextClause | ColumnElement[bool], ...]:
    """Again where they are locked: on PostgreSQL somebody else may have taken one since it was chosen."""
    return text(OWED_DELIVERIES), deliveries.c.due_at <= now, deliveries.c.taken_until <= now


def _is_at(delivery_id: str, attempts: int) -> tuple[ColumnElement[bool], ...]:
    is_pending = deliveries.c.state == DeliveryState.PENDING
    return deliveries.c.id == delivery_id, is_pending, deliveries.c.attempts == attempts


def _is_of_round(delivery: Delivery) -> tuple[ColumnElement[bool], ...]:
    """Not told yet, in the round that this attempt belongs to."""
    untold = deliveries.c.state.in_((DeliveryState.PENDING, DeliveryState.GIVEN_UP))
    return deliveries.c.id == delivery.id, untold, deliveries.c.attempts_before < delivery.attempts


# ---- as it is read


def _columns() -> list[Any]:
    return [deliveries.c[field.name] for field in fields(Delivery)]


def _as_delivery(row: Any) -> Delivery | None:
    return None if row is None else Delivery(**{**row, "state": DeliveryState(row["state"])})
