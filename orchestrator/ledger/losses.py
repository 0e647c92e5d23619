"""Shards that lost their memory, or some of their runs, or have another server: known since when, seen to by whom, and
what came of it.

A loss is written down when it is found, with a time before which nobody may act: holders of claims that nobody
remembers must have ended by then. Whoever sees to it holds it by a token that is drawn for them, for a while, and
closes effect rows only while it is theirs. So of two one acts; who wakes up late is refused before any row is closed.

Each time that a loss is taken begins an era of its shard. Fences and versions of an era begin at a number that is
beyond all that were given in the eras before, whether anybody heard of those or not.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Row, and_, func, insert, select, update

from orchestrator.errors import Superseded
from orchestrator.ledger.drained import restores, run_states
from orchestrator.ledger.effect_row import Kind
from orchestrator.ledger.engine import in_pages
from orchestrator.ledger.tables import EffectState, decisions, effects, epochs

HOLD_MS: Final = 30_000  # how long a restorer that says nothing is believed to live: nobody acts meanwhile
STRIDE: Final = 1_000_000  # more than a run is ever granted fences, or moved, in one era
REMEMBERED_MS: Final = 60_000  # decisions carried out within so long before a run was last heard of are asked again
REPEATABLE: Final = ("cancel", "pause", "resume", "approve", "resolve", "undo")
CLOSED: Final = ("do", "undo")  # rows of what comes late belong to no claim, and stay owed
Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Loss:
    """What is wrong with a shard. cause: amnesia, behind, moved or runs; server: on which that was seen; era, token: of
    who took it last; lease_until: before it nobody may act, or nobody else."""

    namespace: str
    shard: int
    found_at: int
    cause: str
    server: str
    era: int
    holder: str | None
    token: str | None
    lease_until: int
    done_at: int | None
    report_text: str | None


@dataclass(frozen=True, slots=True)
class ClosedRow:
    """What an effect row said when it was closed to every fence that was ever given."""

    state: EffectState
    result_text: str | None


def beyond(era: int, known: int) -> int:
    """A number behind every one that was given before this era. known: the highest that was heard of."""
    return max(era * STRIDE, known + STRIDE)


class Losses:
    """The ledger's rows of losses, and the closing of effect rows that belongs to them."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int]) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock

    def found(self, namespace: str, shard: int, cause: str, server: str, wait_ms: int) -> Loss:
        """Write a loss down, unless it is. One of another cause or server, and runs that are missed later, wait anew;
        whoever holds it holds it no more."""
        with self._begin() as connection:
            _one_at_a_time(connection, namespace)
            row = connection.execute(select(restores).where(*_open(namespace), restores.c.shard == shard)).one_or_none()
            now = self._clock()
            if row is None:
                found_at = max(now, _newest(connection, restores.c.found_at, namespace, shard) + 1)
                fresh = {"namespace": namespace, "shard": shard, "found_at": found_at, "cause": cause, "server": server}
                connection.execute(insert(restores).values(**fresh, era=0, lease_until=now + wait_ms))
            elif (row.cause, row.server) != (cause, server) or (cause == "runs" and row.token is None):
                anew = {
                    "cause": cause,
                    "server": server,
                    "token": None,
                    "lease_until": now + wait_ms,
                    "report_text": None,
                }
                connection.execute(update(restores).where(_same(_loss(row))).values(**anew))
            found = connection.execute(select(restores).where(*_open(namespace), restores.c.shard == shard)).one()
        return _loss(found)

    def open(self, namespace: str) -> list[Loss]:
        """Losses that are not made good yet."""
        with self._read() as connection:
            return [_loss(row) for row in connection.execute(select(restores).where(*_open(namespace)))]

    def all(self, namespace: str, limit: int) -> list[Loss]:
        """Losses, newest first."""
        newest = select(restores).where(restores.c.namespace == namespace).order_by(restores.c.found_at.desc())
        with self._read() as connection:
            return [_loss(row) for row in connection.execute(newest.limit(limit))]

    def claim(self, loss: Loss, holder: str) -> Loss | None:
        """Take a loss as it was seen, if its time has come and nobody has it: for HOLD_MS, and again with each `keep`
        and each run whose rows are closed. holder: for people to read."""
        with self._begin() as connection:
            _one_at_a_time(connection, loss.namespace)
            now = self._clock()
            seen = (restores.c.cause == loss.cause, restores.c.server == loss.server, restores.c.done_at.is_(None))
            free = update(restores).where(_same(loss), *seen, restores.c.lease_until <= now)
            taken = {
                "holder": holder,
                "token": uuid.uuid4().hex,
                "era": _era_after(connection, loss),
                "report_text": None,
            }
            if connection.execute(free.values(**taken, lease_until=now + HOLD_MS)).rowcount != 1:
                return None
            return _loss(connection.execute(select(restores).where(_same(loss))).one())

    def keep(self, held: Loss) -> None:
        """Hold on to a loss for HOLD_MS from now. Superseded: it is somebody else's by now."""
        with self._begin() as connection:
            self._must_hold(connection, held)

    def release(self, held: Loss, pause_ms: int = 0, report_text: str | None = None) -> None:
        """Give up what was taken and is not made good: somebody else may take it then. report_text: what came of it."""
        with self._begin() as connection:
            mine = update(restores).where(_held(held))
            until = self._clock() + pause_ms
            connection.execute(mine.values(token=None, lease_until=until, report_text=report_text))

    def done(self, held: Loss, report_text: str) -> bool:
        """Write down what was done. False: somebody else holds the loss, or it is over."""
        with self._begin() as connection:
            mine = update(restores).where(_held(held))
            return connection.execute(mine.values(done_at=self._clock(), report_text=report_text)).rowcount == 1

    def withdraw(self, loss: Loss, report_text: str) -> bool:
        """End a loss that nobody ever took: it was none. False: somebody has."""
        with self._begin() as connection:
            untouched = (restores.c.done_at.is_(None), restores.c.era == 0)
            mine = update(restores).where(_same(loss), *untouched)
            return connection.execute(mine.values(done_at=self._clock(), report_text=report_text)).rowcount == 1

    def close_rows(
        self, held: Loss, run_id: str, wanted: Sequence[tuple[str, Kind]], known_fence: int
    ) -> tuple[int, dict[tuple[str, str], ClosedRow]]:
        """Close effect rows of claims, made where they are not, to a fence beyond any that can have been given.

        Answers that fence, and what these rows of the run say. Superseded: the loss is somebody else's by now.
        """
        with self._begin() as connection:
            self._must_hold(connection, held)
            rows = {(row.step_id, row.kind): row for row in connection.execute(_rows_of(run_id))}
            seen = [max(row.since, row.closed_to, row.landed_by) for row in rows.values()]
            fence = beyond(held.era, max([known_fence, *seen]))
            closed = {"closed_to": fence, "updated_at": self._clock()}
            claims = update(effects).where(effects.c.run_id == run_id, effects.c.kind.in_(CLOSED))
            connection.execute(claims.values(**closed))
            for page in in_pages([one for one in wanted if one not in rows]):
                blank = {"run_id": run_id, "state": EffectState.NONE, "since": 0, "landed_by": 0, "late": False}
                named = [{**blank, **closed, "step_id": step_id, "kind": kind} for step_id, kind in page]
                connection.execute(insert(effects), named)
        return fence, {key: ClosedRow(EffectState(row.state), row.result_text) for key, row in rows.items()}

    def ask_again(self, run_ids: Sequence[str]) -> int:
        """Have the decisions about these runs that were carried out so lately that the state store may have forgotten
        them repeated: it refuses those that are not due. Answers how many."""
        runs_heard = select(run_states.c.updated_at).where(run_states.c.run_id == decisions.c.run_id).scalar_subquery()
        forgotten = and_(
            decisions.c.run_id.in_(run_ids),
            decisions.c.kind.in_(REPEATABLE),
            decisions.c.done_at >= func.coalesce(runs_heard, 0) - REMEMBERED_MS,
        )
        with self._begin() as connection:
            return connection.execute(update(decisions).where(forgotten).values(done_at=None, outcome=None)).rowcount

    def fences(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Of these runs, the highest fence that an effect row of a claim names, of those that have one."""
        column = effects.c
        highest = [func.max(one) for one in (column.since, column.closed_to, column.landed_by)]
        mine = (column.run_id.in_(run_ids), column.kind.in_(CLOSED))
        with self._read() as connection:
            rows = connection.execute(select(column.run_id, *highest).where(*mine).group_by(column.run_id))
            return {run_id: max(fences) for run_id, *fences in rows}

    def effects_beyond(self, run_ids: Sequence[str]) -> dict[str, set[str]]:
        """Of these runs, the steps whose effect began or happened."""
        query = select(effects.c.run_id, effects.c.step_id).where(
            effects.c.run_id.in_(run_ids), effects.c.kind == "do", effects.c.state != EffectState.NONE
        )
        found: dict[str, set[str]] = {}
        with self._read() as connection:
            for run_id, step_id in connection.execute(query):
                found.setdefault(run_id, set()).add(step_id)
        return found

    def _must_hold(self, connection: Connection, held: Loss) -> None:
        now = self._clock()
        kept = update(restores).where(_held(held), restores.c.lease_until > now).values(lease_until=now + HOLD_MS)
        if connection.execute(kept).rowcount != 1:
            raise Superseded("another process makes this loss good by now")


def _open(namespace: str) -> tuple[ColumnElement[bool], ...]:
    return (restores.c.namespace == namespace, restores.c.done_at.is_(None))


def _same(loss: Loss) -> ColumnElement[bool]:
    return and_(
        restores.c.namespace == loss.namespace,
        restores.c.shard == loss.shard,
        restores.c.found_at == loss.found_at,
    )


def _held(held: Loss) -> ColumnElement[bool]:
    return and_(_same(held), restores.c.done_at.is_(None), restores.c.token == held.token)


def _one_at_a_time(connection: Connection, namespace: str) -> None:
    """Who finds or takes losses of a namespace waits for who does."""
    connection.execute(select(epochs).where(epochs.c.namespace == namespace).with_for_update())


def _era_after(connection: Connection, loss: Loss) -> int:
    return _newest(connection, restores.c.era, loss.namespace, loss.shard) + 1


def _newest(connection: Connection, column: Column[Any], namespace: str, shard: int) -> int:
    of_shard = (restores.c.namespace == namespace, restores.c.shard == shard)
    return int(connection.execute(select(func.max(column)).where(*of_shard)).scalar() or 0)


def _rows_of(run_id: str) -> Any:
    return select(effects).where(effects.c.run_id == run_id, effects.c.kind.in_(CLOSED)).with_for_update()


def _loss(row: Row[Any]) -> Loss:
    return Loss(**{name: getattr(row, name) for name in Loss.__dataclass_fields__})
