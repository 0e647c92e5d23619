"""What the state store reported: each transition once, and where runs and steps stood at the newest version known.

Reports come at least once and in the order of their stream. The cursor moves in the transaction that keeps what lies
before it, and only from where its reader found it, so of two readers of one shard one writes and the other has written
nothing. A row of a lower version never replaces one of a higher.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, insert, select, update

from orchestrator.ledger.drained import admitted_plans, cursors, history, run_states, step_states
from orchestrator.ledger.engine import in_pages, insert_absent
from orchestrator.ledger.rows import AdmittedPlan
from orchestrator.ledger.tables import runs

Transaction = Callable[[], AbstractContextManager[Connection]]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Happened:
    """One transition of a run. fields: what its event says, the moves of its steps under `steps`."""

    run_id: str
    version: int
    generation: int
    at: int
    event: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step's record as JSON, when its run had `version`; its result and last error, if it has any."""

    run_id: str
    step_id: str
    version: int
    status: str
    record_text: str
    result_text: str | None
    error_text: str | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run's hash as JSON, without its policy."""

    run_id: str
    version: int
    generation: int
    status: str
    fields_text: str

    def fields(self) -> dict[str, str]:
        """The hash."""
        found: dict[str, str] = json.loads(self.fields_text)
        return found


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read of one shard's stream behind the cursor `before`, up to `last_id`."""

    namespace: str
    shard: int
    before: str
    last_id: str
    happened: Sequence[Happened]
    runs: Sequence[RunReport]
    steps: Sequence[StepReport]


class History:
    """The ledger's rows of what the state store reported."""

    def __init__(self, begin: Transaction, read: Transaction, clock: Callable[[], int]) -> None:
        self._begin = begin
        self._read = read
        self._clock = clock

    def cursors(self, namespace: str) -> dict[int, str]:
        """Up to which id each shard's stream is here; a shard that is not named has not been read yet."""
        with self._read() as connection:
            query = select(cursors.c.shard, cursors.c.last_id).where(cursors.c.namespace == namespace)
            return {row.shard: row.last_id for row in connection.execute(query)}

    def take(self, batch: Batch) -> bool:
        """Keep what was read, and that it was read. False: somebody else has read on meanwhile; nothing is written."""
        now = self._clock()
        with self._begin() as connection:
            if not _move_cursor(connection, batch, now):
                return False
            _keep_new(connection, [_happened_row(one) for one in batch.happened])
            _keep_newest(connection, run_states, ("run_id",), [_row(one, now) for one in batch.runs])
            _keep_newest(connection, step_states, ("run_id", "step_id"), [_row(one, now) for one in batch.steps])
        return True

    def events(self, run_id: str) -> list[Happened]:
        """The transitions of a run that are known here, in their order."""
        query = select(history).where(history.c.run_id == run_id).order_by(history.c.version)
        with self._read() as connection:
            return [_happened(row) for row in connection.execute(query).mappings()]

    def run(self, run_id: str) -> RunReport | None:
        """Where a run stood when it was last heard of."""
        with self._read() as connection:
            row = connection.execute(select(run_states).where(run_states.c.run_id == run_id)).mappings().one_or_none()
        return RunReport(**{name: row[name] for name in RunReport.__dataclass_fields__}) if row else None

    def standings(self, run_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Generation and version in which these runs were last heard of, as far as they were."""
        columns = (run_states.c.run_id, run_states.c.generation, run_states.c.version)
        query = select(*columns).where(run_states.c.run_id.in_(run_ids))
        with self._read() as connection:
            return {row.run_id: (row.generation, row.version) for row in connection.execute(query)}

    def steps(self, run_id: str) -> dict[str, StepReport]:
        """Where those of its steps stood that have moved."""
        names = StepReport.__dataclass_fields__
        with self._read() as connection:
            rows = connection.execute(select(step_states).where(step_states.c.run_id == run_id)).mappings().all()
        return {row["step_id"]: StepReport(**{name: row[name] for name in names}) for row in rows}

    def longest_silence_ms(self, namespace: str) -> int:
        """Of all admitted plans of a namespace's runs without an end; 0: there is none."""
        query = select(func.max(admitted_plans.c.silence_ms)).join(runs, runs.c.run_id == admitted_plans.c.run_id)
        with self._read() as connection:
            ours = (runs.c.ended_at.is_(None), runs.c.namespace == namespace)
            return int(connection.execute(query.where(*ours)).scalar() or 0)

    def without_admitted(self, run_ids: Sequence[str]) -> set[str]:
        """Which of these runs have no admitted plan here."""
        query = select(admitted_plans.c.run_id).where(admitted_plans.c.run_id.in_(run_ids))
        with self._read() as connection:
            return set(run_ids) - set(connection.execute(query).scalars())

    def keep_admitted(self, run_id: str, generation: int, admitted: AdmittedPlan) -> None:
        """Keep the admitted steps of a plan that was admitted before they were kept."""
        with self._begin() as connection:
            keep_admitted(connection, run_id, generation, admitted)

    def admitted_plan(self, run_id: str, generation: int) -> str | None:
        """The admitted steps that this generation goes by, as JSON: its own, or those of an earlier one."""
        table = admitted_plans.c
        query = select(table.plan_text).where(table.run_id == run_id, table.generation <= generation)
        with self._read() as connection:
            found: str | None = connection.execute(query.order_by(table.generation.desc()).limit(1)).scalar()
        return found


def keep_admitted(connection: Connection, run_id: str, generation: int, admitted: AdmittedPlan) -> None:
    """Keep the steps of an admitted plan; the first of a generation stay."""
    named = {"run_id": run_id, "generation": generation}
    insert_absent(connection, admitted_plans, named | asdict(admitted))


def _move_cursor(connection: Connection, batch: Batch, now: int) -> bool:
    """From where its reader found it; the row is locked until the transaction ends."""
    moved = {"last_id": batch.last_id, "drained_at": now}
    fresh = {"namespace": batch.namespace, "shard": batch.shard, "last_id": "0-0", "drained_at": now}
    insert_absent(connection, cursors, fresh)
    mine = (cursors.c.namespace == batch.namespace, cursors.c.shard == batch.shard, cursors.c.last_id == batch.before)
    return connection.execute(update(cursors).where(*mine).values(**moved)).rowcount == 1


def _keep_new(connection: Connection, rows: list[Row]) -> None:
    """Insert the transitions that are not there yet."""
    for page in in_pages(rows):
        ids, versions = {row["run_id"] for row in page}, {row["version"] for row in page}
        same = select(history.c.run_id, history.c.version).where(
            history.c.run_id.in_(ids), history.c.version.in_(versions)
        )
        known = {tuple(row) for row in connection.execute(same)}
        fresh = {(row["run_id"], row["version"]): row for row in page if (row["run_id"], row["version"]) not in known}
        if fresh:
            connection.execute(insert(history), list(fresh.values()))


def _keep_newest(connection: Connection, table: Table, key: tuple[str, ...], rows: list[Row]) -> None:
    """Insert rows, or replace those of a lower version."""
    for page in in_pages(rows):
        known = _versions(connection, table, key, page)
        fresh = [row for row in page if _key(row, key) not in known]
        newer = [row for row in page if known.get(_key(row, key), row["version"]) < row["version"]]
        if fresh:
            connection.execute(insert(table), fresh)
        if newer:
            mine = [table.c[name] == bindparam(f"old_{name}") for name in key]
            named = [{**row, **{f"old_{name}": row[name] for name in key}} for row in newer]
            values: Row = {name: bindparam(name) for name in newer[0] if name not in key}
            connection.execute(update(table).where(*mine).values(**values), named)


def _versions(
    connection: Connection, table: Table, key: tuple[str, ...], page: Sequence[Row]
) -> dict[tuple[str, ...], int]:
    """The versions of the rows that are there, and perhaps of some that nobody asked for."""
    columns = [table.c[name] for name in key]
    wanted = [column.in_({row[column.name] for row in page}) for column in columns]
    found = connection.execute(select(*columns, table.c.version).where(*wanted))
    return {tuple(row[:-1]): row[-1] for row in found}


def _key(row: Row, key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(row[name] for name in key)


def _row(report: RunReport | StepReport, now: int) -> Row:
    return {**{name: getattr(report, name) for name in report.__dataclass_fields__}, "updated_at": now}


def _happened_row(one: Happened) -> Row:
    values = {name: getattr(one, name) for name in ("run_id", "version", "generation", "at", "event")}
    return {**values, "fields_text": json.dumps(one.fields)}


def _happened(row: Any) -> Happened:
    values = {name: row[name] for name in ("run_id", "version", "generation", "at", "event")}
    return Happened(**values, fields=json.loads(row["fields_text"]))
