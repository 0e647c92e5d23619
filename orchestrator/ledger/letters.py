"""Dead letters and what people decide about them, as functions of an open transaction."""

import hashlib
import json
import uuid
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, tuple_, update

from orchestrator.ledger import reads, writes
from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.rows import LetterDecision, LetterFilter, LetterGroup, ListedLetter, Taken
from orchestrator.ledger.tables import dead_letters, letter_decisions, runs
from schemas.dead_letter import DeadLetter, DeadLetterKind, DeadLetterStatus
from schemas.fingerprint import fingerprint

REOPENED: Final = {"status": DeadLetterStatus.OPEN}


# ---- written


def write(connection: Connection, letter: DeadLetter, dedup_key: str, namespace: str) -> str:
    """Keep a dead letter, once per dedup_key; answers the id of the one that stands."""
    cause = dedup_key if letter.run_id else f"{namespace} {dedup_key}"  # what is no run's may happen to others as well
    dedup_hash = hashlib.sha256(cause.encode("utf-8", "backslashreplace")).hexdigest()
    values = _values(letter) | _labels(connection, letter, namespace)
    insert_absent(connection, dead_letters, values | {"dedup_hash": dedup_hash})
    found = select(dead_letters.c.id).where(dead_letters.c.dedup_hash == dedup_hash)
    return str(connection.execute(found).scalar_one())


def _values(letter: DeadLetter) -> dict[str, Any]:
    """A letter's columns. The content stays readable whatever was sent: ASCII JSON holds any string."""
    values = letter.model_dump(mode="python")
    content = json.dumps(values.pop("content"), ensure_ascii=True)
    return values | {"reason": writes.writable(letter.reason), "content_text": content}


def _labels(connection: Connection, letter: DeadLetter, namespace: str) -> dict[str, str | None]:
    """What it is found by, and whose it is: its run's, else of the `namespace` that writes it. Its run may be deleted
    before it is, so what is known of that is noted here."""
    of_run = select(runs.c.planner, runs.c.session_id, runs.c.namespace).where(runs.c.run_id == letter.run_id)
    run = connection.execute(of_run).one_or_none() if letter.run_id else None
    planner = run.planner if run else _word(letter.content.get("planner"))
    return {
        "fingerprint": fingerprint(letter.kind.value, letter.reason, {**letter.content, "planner": planner}),
        "action": _word(letter.content.get("action")),
        "planner": planner,
        "session_id": run.session_id if run else None,
        "namespace": (run.namespace if run else "") or namespace,
    }


def _word(value: Any) -> str | None:
    return writes.writable(value) if isinstance(value, str) else None


# ---- read


def page(
    connection: Connection, limit: int, before: str | None, kind: str | None, run_id: str | None
) -> list[DeadLetter]:
    """Dead letters, newest first, older than the letter `before`; of one kind, of one run."""
    wanted = LetterFilter(kind=DeadLetterKind(kind) if kind else None, run_id=run_id)
    query = _older_than(select(dead_letters), before).where(*_conditions(wanted))
    return [as_letter(row) for row in connection.execute(query.limit(limit))]


def one(connection: Connection, letter_id: str, namespace: str | None) -> DeadLetter | None:
    """One letter; of one namespace."""
    row = connection.execute(select(dead_letters).where(*_named(letter_id, namespace))).one_or_none()
    return as_letter(row) if row else None


def as_letter(row: Row[Any]) -> DeadLetter:
    """A letter from its columns."""
    return DeadLetter(
        id=row.id,
        kind=DeadLetterKind(row.kind),
        run_id=row.run_id,
        step_id=row.step_id,
        reason=row.reason,
        created_at=row.created_at,
        status=DeadLetterStatus(row.status),
        content=json.loads(row.content_text),
    )


def listed(connection: Connection, limit: int, before: str | None, wanted: LetterFilter) -> list[ListedLetter]:
    """The columns of a list, newest first, older than the letter `before`, of the letters that are wanted."""
    query = _older_than(_listing(), before).where(*_conditions(wanted)).limit(limit)
    return [ListedLetter(**row) for row in connection.execute(query).mappings()]


def listed_one(connection: Connection, letter_id: str, namespace: str | None) -> ListedLetter | None:
    """The same of one letter; of one namespace."""
    row = connection.execute(_listing().where(*_named(letter_id, namespace))).mappings().one_or_none()
    return ListedLetter(**row) if row else None


def groups(
    connection: Connection, limit: int, before: tuple[int, str] | None, wanted: LetterFilter
) -> list[LetterGroup]:
    """Letters that say the same, the group with the newest letter first, older than the group `before`."""
    column, newest = dead_letters.c, func.max(dead_letters.c.created_at)
    grouped = (
        select(column.fingerprint, func.count().label("letters"), newest.label("newest_at"), _oldest())
        .where(*_conditions(wanted))
        .group_by(column.fingerprint)
        .order_by(newest.desc(), column.fingerprint.desc())
    )
    if before is not None:
        grouped = grouped.having(tuple_(newest, column.fingerprint) < before)
    found = connection.execute(grouped.limit(limit)).all()
    return [
        LetterGroup(
            row.fingerprint, row.letters, row.newest_at, row.oldest_at, _newest_of(connection, row.fingerprint, wanted)
        )
        for row in found
    ]


def _oldest() -> Any:
    return func.min(dead_letters.c.created_at).label("oldest_at")


def _newest_of(connection: Connection, of_group: str, wanted: LetterFilter) -> ListedLetter:
    mine = dead_letters.c.fingerprint == of_group
    query = _older_than(_listing(), None).where(mine, *_conditions(wanted)).limit(1)
    return ListedLetter(**connection.execute(query).mappings().one())


def _listing() -> Select[Any]:
    return select(*(dead_letters.c[field.name] for field in fields(ListedLetter)))


def _older_than(query: Select[Any], before: str | None) -> Select[Any]:
    return reads.older_than(query, dead_letters.c.created_at, dead_letters.c.id, before, dead_letters)


def _conditions(wanted: LetterFilter) -> list[ColumnElement[bool]]:
    column = dead_letters.c
    equal = ("kind", "status", "fingerprint", "action", "planner", "session_id", "run_id")
    asked = [(name, getattr(wanted, name)) for name in equal]
    found: list[ColumnElement[bool]] = [column[name] == value for name, value in asked if value is not None]
    if wanted.since is not None:
        found.append(column.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(column.created_at < wanted.until)
    return found + _of(wanted.namespace)


def _named(letter_id: str, namespace: str | None) -> list[ColumnElement[bool]]:
    return [dead_letters.c.id == letter_id, *_of(namespace)]


def _of(namespace: str | None) -> list[ColumnElement[bool]]:
    """Of a namespace, or nobody's: those of before that nobody has dealt with."""
    return [] if namespace is None else [dead_letters.c.namespace.in_((namespace, ""))]


# ---- decided about


def decide(connection: Connection, values: dict[str, Any], status: DeadLetterStatus) -> LetterDecision | Taken:
    """Keep a decision about an open letter, whose state that ends; a letter that was nobody's is the decider's.
    Taken: it was not open any more, or never was, or not for this namespace."""
    named = _named(values["letter_id"], values["namespace"])
    mine = update(dead_letters).where(*named, dead_letters.c.status == "open")
    if connection.execute(mine.values(status=status, namespace=values["namespace"])).rowcount != 1:
        return Taken(standing(connection, values["letter_id"]))
    decision = LetterDecision(id=str(uuid.uuid4()), **values)
    connection.execute(
        letter_decisions.insert().values({field.name: getattr(decision, field.name) for field in fields(decision)})
    )
    return decision


def standing(connection: Connection, letter_id: str) -> LetterDecision | None:
    """The newest decision about a letter."""
    found = decisions(connection, letter_id)
    return found[-1] if found else None


def decisions(connection: Connection, letter_id: str) -> list[LetterDecision]:
    """What people have decided about a letter, oldest first."""
    about = select(letter_decisions).where(letter_decisions.c.letter_id == letter_id)
    ordered = about.order_by(letter_decisions.c.created_at, letter_decisions.c.id)
    return [LetterDecision(**row) for row in connection.execute(ordered).mappings()]


def pending(connection: Connection, limit: int, namespace: str, after: LetterDecision | None) -> list[LetterDecision]:
    """Decisions of an installation that were not carried out yet, oldest first, behind the one `after`."""
    column = letter_decisions.c
    oldest_first = (column.created_at, column.id)
    query = select(letter_decisions).where(column.done_at.is_(None), column.namespace == namespace)
    if after is not None:
        query = query.where(tuple_(*oldest_first) > (after.created_at, after.id))
    found = connection.execute(query.order_by(*oldest_first).limit(limit)).mappings()
    return [LetterDecision(**row) for row in found]


def done(connection: Connection, decision: LetterDecision, outcome: str, now: int, *, reopen: bool) -> bool:
    """Note what came of a decision; the first answer stays. reopen: nothing, so that the letter is to be dealt with."""
    mine = update(letter_decisions).where(letter_decisions.c.id == decision.id, letter_decisions.c.done_at.is_(None))
    written = connection.execute(mine.values(outcome=writes.writable(outcome), done_at=now)).rowcount == 1
    if written and reopen:
        connection.execute(update(dead_letters).where(dead_letters.c.id == decision.letter_id).values(**REOPENED))
    return written
