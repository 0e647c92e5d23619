"""Shards that lost their memory, or some of their runs: known since when, built again by whom, and what came of it.

A loss is written down when it is found, with a time before which nobody may act: holders of claims that nobody
remembers must have ended by then. Whoever builds the shard again holds the loss by a lease, and closes effect rows only
while it does. So of two restorers one acts; one that wakes up late is refused here before it has closed anything.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, insert, select, update

from orchestrator.errors import LedgerError
from orchestrator.ledger.drained import restores
from orchestrator.ledger.effects import Kind
from orchestrator.ledger.tables import EffectState, decisions, effects, epochs

PAGE: Final = 500
HOLD_MS: Final = 60_000  # how long a restorer that says nothing is believed to live
REPEATABLE: Final = ("cancel", "pause", "resume", "approve", "resolve")
Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Loss:
    """What a shard lost. cause: amnesia, behind or runs; lease_until: before it nobody may act, or nobody else."""

    namespace: str
    shard: int
    found_at: int
    cause: str
    holder: str | None
    lease_until: int
    done_at: int | None
    report_text: str | None


@dataclass(frozen=True, slots=True)
class ClosedRow:
    """What an effect row said when it was closed to every fence that was ever given."""

    state: EffectState
    result_text: str | None


class Losses:
    """The ledger's rows of losses, and the closing of effect rows that belongs to them."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int]) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock

    def found(self, namespace: str, shard: int, cause: str, wait_ms: int) -> Loss:
        """Write a loss down, unless it is. One of another cause, and runs that are missed later, wait anew."""
        with self._begin() as connection:
            connection.execute(select(epochs).where(epochs.c.namespace == namespace).with_for_update())
            row = connection.execute(select(restores).where(*_open(namespace), restores.c.shard == shard)).one_or_none()
            now = self._clock()
            if row is None:
                fresh = {"namespace": namespace, "shard": shard, "found_at": now, "cause": cause}
                connection.execute(insert(restores).values(**fresh, lease_until=now + wait_ms))
            elif row.cause != cause or (cause == "runs" and row.holder is None):
                anew = {"cause": cause, "holder": None, "lease_until": now + wait_ms}
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

    def claim(self, loss: Loss, holder: str) -> bool:
        """Whether `holder` may make it good now: its time has come, and nobody else does. Held for HOLD_MS, and again
        with each run whose rows are closed."""
        with self._begin() as connection:
            now = self._clock()
            free = (restores.c.lease_until <= now) | (restores.c.holder == holder)
            mine = update(restores).where(_same(loss), restores.c.done_at.is_(None), free)
            return connection.execute(mine.values(holder=holder, lease_until=now + HOLD_MS)).rowcount == 1

    def done(self, loss: Loss, holder: str, report_text: str) -> bool:
        """Write down what was done. False: somebody else holds the loss, or it is over."""
        with self._begin() as connection:
            mine = update(restores).where(_same(loss), restores.c.done_at.is_(None), restores.c.holder == holder)
            return connection.execute(mine.values(done_at=self._clock(), report_text=report_text)).rowcount == 1

    def close_rows(
        self, loss: Loss, holder: str, run_id: str, wanted: Sequence[tuple[str, Kind]], known_fence: int, ahead: int
    ) -> tuple[int, dict[tuple[str, str], ClosedRow]]:
        """Close effect rows, made where they are not, to a fence that is `ahead` of any that can have been given.

        Answers that fence, and what all rows of the run say. LedgerError: the loss is somebody else's by now.
        """
        with self._begin() as connection:
            self._must_hold(connection, loss, holder)
            rows = {(row.step_id, row.kind): row for row in connection.execute(_rows_of(run_id))}
            seen = [max(row.since, row.closed_to, row.landed_by) for row in rows.values()]
            fence = max([known_fence, *seen]) + ahead
            closed = {"closed_to": fence, "updated_at": self._clock()}
            connection.execute(update(effects).where(effects.c.run_id == run_id).values(**closed))
            for page in _pages([one for one in wanted if one not in rows]):
                blank = {"run_id": run_id, "state": EffectState.NONE, "since": 0, "landed_by": 0, "late": False}
                named = [{**blank, **closed, "step_id": step_id, "kind": kind} for step_id, kind in page]
                connection.execute(insert(effects), named)
        return fence, {key: ClosedRow(EffectState(row.state), row.result_text) for key, row in rows.items()}

    def ask_again(self, run_id: str, generation: int, since: int) -> int:
        """Have the decisions that were carried out since then, which the state store may have forgotten, repeated: it
        refuses those that it did not. Answers how many."""
        forgotten = and_(
            decisions.c.run_id == run_id,
            decisions.c.generation == generation,
            decisions.c.kind.in_(REPEATABLE),
            decisions.c.done_at >= since,
        )
        with self._begin() as connection:
            return connection.execute(update(decisions).where(forgotten).values(done_at=None, outcome=None)).rowcount

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

    def _must_hold(self, connection: Connection, loss: Loss, holder: str) -> None:
        now = self._clock()
        mine = (_same(loss), restores.c.done_at.is_(None), restores.c.holder == holder, restores.c.lease_until > now)
        kept = update(restores).where(*mine).values(lease_until=now + HOLD_MS)
        if connection.execute(kept).rowcount != 1:
            raise LedgerError("another process makes this loss good by now", hint="nothing was changed; look again")


def _open(namespace: str) -> tuple[ColumnElement[bool], ...]:
    return (restores.c.namespace == namespace, restores.c.done_at.is_(None))


def _same(loss: Loss) -> ColumnElement[bool]:
    return and_(
        restores.c.namespace == loss.namespace,
        restores.c.shard == loss.shard,
        restores.c.found_at == loss.found_at,
    )


def _rows_of(run_id: str) -> Any:
    return select(effects).where(effects.c.run_id == run_id).with_for_update()


def _pages(wanted: Sequence[tuple[str, Kind]]) -> Iterator[Sequence[tuple[str, Kind]]]:
    return (wanted[start : start + PAGE] for start in range(0, len(wanted), PAGE))


def _loss(row: Row[Any]) -> Loss:
    return Loss(**{name: getattr(row, name) for name in Loss.__dataclass_fields__})
