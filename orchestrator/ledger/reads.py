"""What the ledger remembers, as functions of an open transaction."""

from dataclasses import fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, and_, select, tuple_

from orchestrator.ledger import tables
from orchestrator.ledger.rows import (
    Decision,
    Epoch,
    LedgerRun,
    ListedRun,
    PlannerAnswer,
    Record,
    RecordChange,
    RunFilter,
    StoredPlan,
)
from orchestrator.ledger.tables import decisions, epochs, plans, records, run_words, runs
from schemas.ids import RunRef, session_key
from schemas.states import RunStatus

# a decision waits for its answer by which a run that has ended goes on
GOES_ON: Final = and_(decisions.c.kind.in_(("retry", "undo")), decisions.c.done_at.is_(None))


def runs_with_plans() -> Select[Any]:
    """Runs, each with the hash of its newest plan."""
    newest = select(plans.c.plan_hash).where(plans.c.run_id == runs.c.run_id).order_by(plans.c.generation.desc())
    return select(runs, newest.limit(1).scalar_subquery().label("plan_hash"))


def run(connection: Connection, run_id: str) -> LedgerRun | None:
    """One run."""
    row = connection.execute(runs_with_plans().where(runs.c.run_id == run_id)).mappings().one_or_none()
    return as_run(row) if row else None


def listed_runs(connection: Connection, limit: int, before: str | None, wanted: RunFilter) -> list[ListedRun]:
    """The columns of a list, newest first, older than the run `before`, of the runs that are wanted."""
    listed = select(*(runs.c[field.name] for field in fields(ListedRun))).where(*run_conditions(wanted))
    time, key = runs.c.accepted_at, runs.c.run_id
    for about, word in (("action", wanted.action), ("error", wanted.error)):
        if word is not None:
            words = run_words.alias(about)
            listed = listed.join(words, words.c.run_id == runs.c.run_id)
            listed = listed.where(words.c.about == about, words.c.word == word)
            time, key = words.c.accepted_at, words.c.run_id  # the order comes from the word's own index
    query = older_than(listed, time, key, before)
    found = connection.execute(query.limit(limit)).mappings()
    return [ListedRun(**{**row, "status": RunStatus(row["status"])}) for row in found]


def run_conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    """What the run's own columns must say."""
    column = runs.c
    equal = {column.status: wanted.status, column.session_id: wanted.session_id, column.planner: wanted.planner}
    found = [name == value for name, value in equal.items() if value is not None]
    if wanted.session_id is not None:
        found.append(column.session == session_key(wanted.session_id))
    if wanted.ended is not None:
        found.append(column.ended_at.is_not(None) if wanted.ended else column.ended_at.is_(None))
    if wanted.namespace is not None:
        found.append(column.namespace.in_((wanted.namespace, "")))  # "": of runs that are nobody's yet
    if wanted.since is not None:
        found.append(column.accepted_at >= wanted.since)
    if wanted.until is not None:
        found.append(column.accepted_at < wanted.until)
    return found


def open_runs(connection: Connection, after: str | None, limit: int, namespace: str) -> list[LedgerRun]:
    """Runs of a namespace without an end, by id, after the id `after`: a page of a walk that sees every run once."""
    query = runs_with_plans().where(*open_after(after), runs.c.namespace == namespace).order_by(runs.c.run_id)
    return [as_run(row) for row in connection.execute(query.limit(limit)).mappings()]


def open_refs(connection: Connection, after: str | None, limit: int, namespace: str) -> list[RunRef]:
    """The same, of which only the names are read."""
    query = select(runs.c.run_id, runs.c.session).where(*open_after(after), runs.c.namespace == namespace)
    return [RunRef(*row) for row in connection.execute(query.order_by(runs.c.run_id).limit(limit))]


def reopening_refs(connection: Connection, after: str | None, limit: int, namespace: str) -> list[RunRef]:
    """Names of ended runs that a decision, which has no answer yet, may have opened again in the state store."""
    beyond = [runs.c.run_id > after] if after is not None else []
    query = select(runs.c.run_id, runs.c.session).join(decisions, decisions.c.run_id == runs.c.run_id).distinct()
    ended = query.where(GOES_ON, runs.c.ended_at.is_not(None), runs.c.namespace == namespace, *beyond)
    return [RunRef(*row) for row in connection.execute(ended.order_by(runs.c.run_id).limit(limit))]


def open_after(after: str | None) -> list[ColumnElement[bool]]:
    """Which runs have no end and an id beyond `after`."""
    beyond = [runs.c.run_id > after] if after is not None else []
    return [runs.c.ended_at.is_(None), *beyond]


def plan(connection: Connection, run_id: str, generation: int) -> StoredPlan | None:
    """The plan of one generation."""
    query = select(plans).where(plans.c.run_id == run_id, plans.c.generation == generation)
    row = connection.execute(query).mappings().one_or_none()
    return StoredPlan(**row) if row else None


def newest_plan(connection: Connection, run_id: str) -> StoredPlan | None:
    """That of the newest generation that has one."""
    query = select(plans).where(plans.c.run_id == run_id).order_by(plans.c.generation.desc()).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return StoredPlan(**row) if row else None


def planner_answers(connection: Connection, run_id: str, generation: int) -> list[PlannerAnswer]:
    """The answers a planner gave for one generation, in order."""
    column = tables.planner_answers.c
    asked = select(tables.planner_answers).where(column.run_id == run_id, column.generation == generation)
    return [PlannerAnswer(**row) for row in connection.execute(asked.order_by(column.number)).mappings()]


def pending_decisions(
    connection: Connection, limit: int, run_id: str | None, namespace: str | None, after: Decision | None
) -> list[Decision]:
    """Decisions not carried out yet, oldest first, behind the one `after`; of one run; about runs of one namespace, or
    of nobody's."""
    oldest_first = (decisions.c.created_at, decisions.c.id)
    query = select(decisions).where(decisions.c.done_at.is_(None)).order_by(*oldest_first).limit(limit)
    if run_id is not None:
        query = query.where(decisions.c.run_id == run_id)
    if namespace is not None:
        ours = select(runs.c.run_id).where(runs.c.run_id == decisions.c.run_id, runs.c.namespace.in_((namespace, "")))
        query = query.where(ours.exists())
    if after is not None:
        query = query.where(tuple_(*oldest_first) > (after.created_at, after.id))
    return [Decision(**row) for row in connection.execute(query).mappings()]


def decision(connection: Connection, decision_id: str) -> Decision | None:
    """One decision."""
    row = connection.execute(select(decisions).where(decisions.c.id == decision_id)).mappings().one_or_none()
    return Decision(**row) if row else None


def decisions_of(connection: Connection, run_id: str) -> list[Decision]:
    """All decisions about a run, oldest first."""
    about = select(decisions).where(decisions.c.run_id == run_id)
    ordered = about.order_by(decisions.c.created_at, decisions.c.id)
    return [Decision(**row) for row in connection.execute(ordered).mappings()]


def epoch(connection: Connection, namespace: str) -> Epoch | None:
    """The epoch of a namespace."""
    row = connection.execute(select(epochs).where(epochs.c.namespace == namespace)).mappings().one_or_none()
    return Epoch(**row) if row else None


def record(connection: Connection, entity_id: str) -> Record | None:
    """One record."""
    row = connection.execute(select(records).where(records.c.entity_id == entity_id)).mappings().one_or_none()
    return Record(**row) if row else None


def record_changes(connection: Connection, run_id: str) -> list[RecordChange]:
    """What a run changed, oldest first."""
    column = tables.record_changes.c
    oldest_first = (column.created_at, column.entity_id, column.version_after)
    query = select(tables.record_changes).where(column.run_id == run_id).order_by(*oldest_first)
    return [RecordChange(**row) for row in connection.execute(query).mappings()]


def older_than(
    query: Select[Any], time: ColumnElement[Any], key: ColumnElement[Any], before: str | None, home: Table = runs
) -> Select[Any]:
    """A page of a list, newest first. A `before` that its home has not (any more) leaves an empty page."""
    newest_first = query.order_by(time.desc(), key.desc())
    if before is None:
        return newest_first
    cursor = home.alias("cursor")
    own_key = cursor.c[str(key.key)]
    place = select(cursor.c[str(time.key)], own_key).where(own_key == before)
    return newest_first.where(tuple_(time, key) < place.scalar_subquery())


def as_run(row: RowMapping) -> LedgerRun:
    """A run from its columns."""
    return LedgerRun(**{**row, "status": RunStatus(row["status"])})
