"""What the ledger is told, as functions of an open write transaction, which the caller commits."""

import json
import uuid
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, update

from orchestrator.errors import ConfigError, NotFound
from orchestrator.ledger import reads
from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.rows import Accepted, AcceptedRun, ConflictingSubmission, Epoch, PlannerAnswer, StoredPlan
from orchestrator.ledger.tables import (
    DeliveryState,
    dead_letters,
    decisions,
    deliveries,
    epochs,
    planner_answers,
    plans,
    run_words,
    runs,
)
from schemas.callback import body_of, delivery_id, host_of
from schemas.states import RunStatus


def accept(connection: Connection, run: AcceptedRun, now: int) -> Accepted | ConflictingSubmission:
    """Remember a run, unless its id is taken: by the same submission, or by another."""
    fresh = {"accepted_at": now, "generation": 1, "status": RunStatus.ACCEPTED, "version": 0}
    labels = {"session_id": writable(run.session_id), "request_id": writable(run.request_id)}
    created = insert_absent(connection, runs, asdict(run) | labels | fresh)
    stands = reads.run(connection, run.run_id)
    if stands is None:
        raise NotFound(f"run {run.run_id} was removed from the ledger meanwhile", hint="submit it again")
    if not stands.is_of(run.submission_hash):
        return ConflictingSubmission(run.run_id, stands.submission_hash)
    return Accepted(created, stands)


def claim_run(connection: Connection, run_id: str, namespace: str) -> bool:
    """Say whose a run is of which that was not noted, with the letters about it."""
    nobodys = update(runs).where(runs.c.run_id == run_id, runs.c.namespace == "")
    claimed = connection.execute(nobodys.values(namespace=namespace)).rowcount == 1
    if claimed:
        told = update(dead_letters).where(dead_letters.c.run_id == run_id, dead_letters.c.namespace == "")
        connection.execute(told.values(namespace=namespace))
    return claimed


def store_plan(connection: Connection, plan: StoredPlan) -> StoredPlan:
    """Keep the first plan of a run's generation; answers the one that stands."""
    lock_run(connection, plan.run_id)
    if insert_absent(connection, plans, asdict(plan)):
        actions = {step["action"] for step in json.loads(plan.plan_text).get("steps", ())}
        find_by(connection, plan.run_id, "action", actions)
    return reads.plan(connection, plan.run_id, plan.generation) or plan


def store_answer(connection: Connection, answer: PlannerAnswer) -> PlannerAnswer:
    """Keep a planner's answer, once per number; answers the one that stands."""
    lock_run(connection, answer.run_id)
    insert_absent(connection, planner_answers, asdict(answer))
    standing = reads.planner_answers(connection, answer.run_id, answer.generation)
    return next((one for one in standing if one.number == answer.number), answer)


def end_run(
    connection: Connection,
    run_id: str,
    generation: int,
    status: RunStatus,
    reason: str | None,
    version: int,
    ended_at: int,
    errors: Collection[str],
) -> bool:
    """Write the end of a run's generation once. False: this generation, or a later one, has its end already."""
    lock_run(connection, run_id)
    end = {
        "generation": generation,
        "status": status,
        "reason": writable(reason),
        "version": version,
        "ended_at": ended_at,
    }
    mine = update(runs).where(runs.c.run_id == run_id, still_open(generation))
    written = connection.execute(mine.values(**end)).rowcount == 1
    if written:
        connection.execute(delete(run_words).where(run_words.c.run_id == run_id, run_words.c.about == "error"))
        find_by(connection, run_id, "error", errors)
        owe_delivery(connection, run_id)
    return written


def owe_delivery(connection: Connection, run_id: str) -> None:
    """Somebody who wants to hear of a run's end is to be told of the one just written, once for each generation."""
    named = ("callback", "namespace", "request_id", "session_id", "generation", "status", "reason", "ended_at")
    run = connection.execute(select(*(runs.c[name] for name in named)).where(runs.c.run_id == run_id)).one()
    if run.callback is None:
        return
    said = (run.request_id, run.session_id, run.generation, run.status, run.reason, run.ended_at)
    values = {
        "id": delivery_id(run_id, run.generation),
        "run_id": run_id,
        "generation": run.generation,
        "namespace": run.namespace,
        "url": run.callback,
        "host": host_of(run.callback),
        "body_text": body_of(run_id, *said),
        "state": DeliveryState.PENDING,
        "attempts": 0,
        "attempts_before": 0,
        "due_at": run.ended_at,
        "taken_until": 0,
        "created_at": run.ended_at,
    }
    insert_absent(connection, deliveries, values)


def find_by(connection: Connection, run_id: str, about: Literal["action", "error"], words: Collection[str]) -> None:
    """Have a run found by these words, too."""
    accepted_at = connection.execute(select(runs.c.accepted_at).where(runs.c.run_id == run_id)).scalar_one()
    for word in sorted(words):
        values = {"run_id": run_id, "about": about, "word": writable(word), "accepted_at": accepted_at}
        insert_absent(connection, run_words, values)


def start_undoing(connection: Connection, run_id: str, generation: int) -> bool:
    """Note that a generation of a run is being undone, unless it has ended."""
    lock_run(connection, run_id)
    begun = {"generation": generation, "status": RunStatus.COMPENSATING}
    mine = update(runs).where(runs.c.run_id == run_id, still_open(generation))
    return connection.execute(mine.values(**begun)).rowcount == 1


def still_open(generation: int) -> ColumnElement[bool]:
    """Runs that have no end in this generation and have not gone beyond it."""
    same = and_(runs.c.generation == generation, runs.c.ended_at.is_(None))
    return or_(runs.c.generation < generation, same)


def decide(connection: Connection, values: dict[str, Any], decision_id: str | None = None) -> str:
    """Keep a decision until it is carried out. The same one, not carried out yet, is not kept twice; nor is one that
    comes with its own id, carried out or not.
    """
    lock_run(connection, values["run_id"])
    if decision_id is not None:
        insert_absent(connection, decisions, {"id": decision_id, **values})
        return decision_id
    named = ("run_id", "generation", "kind", "step_id", "details_text")
    same = [decisions.c[name].is_not_distinct_from(values[name]) for name in named]
    pending = connection.execute(select(decisions.c.id).where(*same, decisions.c.done_at.is_(None))).scalar()
    if pending is not None:
        return str(pending)
    decision_id = str(uuid.uuid4())
    connection.execute(decisions.insert().values(id=decision_id, **values))
    return decision_id


def decision_done(connection: Connection, decision_id: str, outcome: str, now: int) -> bool:
    """Note what the store answered to a decision; the first answer stays."""
    undone = and_(decisions.c.id == decision_id, decisions.c.done_at.is_(None))
    return connection.execute(update(decisions).where(undone).values(outcome=outcome, done_at=now)).rowcount == 1


def pending_decision(connection: Connection, decision_id: str) -> bool:
    """Whether a decision is still to be carried out. It stays so until the transaction ends."""
    undone = select(decisions.c.id).where(decisions.c.id == decision_id, decisions.c.done_at.is_(None))
    return connection.execute(undone.with_for_update()).scalar() is not None


def reopen_run(connection: Connection, run_id: str, generation: int, status: RunStatus) -> bool:
    """Take back the end of a run that was started over. False: this generation is known already."""
    lock_run(connection, run_id)
    blank = {"generation": generation, "status": status, "reason": None, "version": 0, "ended_at": None}
    older = and_(runs.c.run_id == run_id, runs.c.generation < generation)
    return connection.execute(update(runs).where(older).values(**blank)).rowcount == 1


def create_epoch(connection: Connection, namespace: str, shards: int, now: int) -> Epoch:
    """Draw the epoch of a namespace once. ConfigError if it was drawn for another number of shards."""
    drawn = {"namespace": namespace, "epoch": uuid.uuid4().hex, "shards": shards, "created_at": now}
    insert_absent(connection, epochs, drawn)
    stands = reads.epoch(connection, namespace)
    if stands is None or stands.shards != shards:
        has = stands.shards if stands else "no"
        message = f"namespace {namespace} was set up with {has} shards; this installation asks for {shards}"
        raise ConfigError(
            message, path="MANDOR_SHARDS", hint=f"set MANDOR_SHARDS={has}, or use another MANDOR_NAMESPACE"
        )
    return stands


def lock_run(connection: Connection, run_id: str) -> None:
    """Hold a run's row until the transaction ends. NotFound if the ledger never accepted it."""
    held = connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update()).scalar()
    if held is None:
        raise NotFound(f"the ledger knows no run {run_id}", path="run_id", hint="see `mandor run list`")


def writable(words: str | None) -> str | None:
    """Text any database takes: lone surrogates and NUL, which hostile input may hold, are written out."""
    if words is None:
        return None
    return words.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
