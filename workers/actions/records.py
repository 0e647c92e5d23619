"""mutate_record: change a record in the ledger's database, in one transaction with the proof that it was done.

A record is a JSON object under a UUID, with a version that grows by one per change. Its keys are data and nothing else:
identity, version and times live in columns of their own, out of reach of `changes`.
"""

import json
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, select, update

from orchestrator.admission import Referable
from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.tables import record_changes, records
from orchestrator.settings import env_name
from schemas.canonical import MAX_SAFE_INTEGER, canonical_text
from schemas.ids import PLAN_ID as UUID_FORM
from schemas.policy import Policy
from workers.context import Context
from workers.outcomes import NoEffect, PermanentError
from workers.registry import action


class RecordChangedSince(PermanentError, NoEffect):
    """Somebody has changed the record after the step that is to be undone: only a person can say what it should be."""

    kind = "record_changed_since"


class RecordTooLarge(PermanentError, NoEffect):
    """The changed record would have more bytes or keys than the policy allows; nothing was changed."""

    kind = "record_too_large"


class RecordTooDeep(PermanentError, NoEffect):
    """The changed record would nest deeper than the policy allows; nothing was changed."""

    kind = "record_too_deep"


class OtherVersion(PermanentError, NoEffect):
    """The record is not at the version that the step expects; nothing was changed."""

    kind = "other_version"


def normal_uuid(value: str) -> str:
    """A UUID in its 36-character form, lower case, so that one record has one key."""
    if UUID_FORM.fullmatch(value) is None:
        raise ValueError("not a UUID in its 36-character form")
    return value.lower()


_MENDS: Final = {
    "record_bytes": "keep large values in files",
    "record_keys": "spread it over several records",
    "record_depth": "nest less, or keep the inner parts as text",
}
EntityId = Annotated[str, AfterValidator(normal_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]


class MutateRecord(BaseModel):
    """entity_id: the record, made if it is not there. changes: values by key; a key that is there is replaced whole,
    nested objects included, and null is stored as null. expected_version: change it at this version only; 0: make it.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entity_id: EntityId = Field(description="UUID of the record, 36 characters")
    changes: dict[str, JsonValue] = Field(description="new values of the record's top-level keys")
    expected_version: Annotated[int | None, Referable] = Field(
        None, ge=0, le=MAX_SAFE_INTEGER, description="change nothing unless the record is at this version; 0: not there"
    )


class RecordMutated(BaseModel):
    """version_before is 0 for a record that was not there; version_after is one more."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entity_id: str
    version_before: int
    version_after: int


@dataclass(frozen=True, slots=True)
class Before:
    """A record as it was found and locked. text: its JSON."""

    entity_id: str
    version: int
    text: str


def changed_record(params: MutateRecord) -> str:
    """What two unordered steps may not both change: undone in another order, neither would find what it left."""
    return f"record {params.entity_id}"


@action("mutate_record", effect="transactional", exclusive=changed_record)
def mutate_record(params: MutateRecord, ctx: Context) -> RecordMutated:
    """Merge changes into a record. Record, before-image and effect row are committed together or not at all."""
    ledger = ctx.ledger()
    with ledger.begin() as connection:
        before = locked_record(connection, params.entity_id)
        result = RecordMutated(
            entity_id=params.entity_id, version_before=before.version, version_after=before.version + 1
        )
        ctx.effect(connection, result)  # before all else: for a step that was applied already this ends the block
        refuse_other_version(before, params.expected_version)
        write_record(connection, before, changed_text(before, params.changes, ctx.policy), ledger.now_ms())
        write_change(connection, ctx, before, ledger.now_ms())
    return result


def locked_record(connection: Connection, entity_id: str) -> Before:
    """The record, held until the transaction ends; one that is not there begins empty at version 0."""
    insert_absent(connection, records, {"entity_id": entity_id, "version": 0, "data_text": "{}", "updated_at": 0})
    row = connection.execute(select(records).where(records.c.entity_id == entity_id).with_for_update()).one()
    return Before(entity_id, row.version, row.data_text)


def refuse_other_version(before: Before, expected: int | None) -> None:
    """OtherVersion, unless the step expects this one or does not care."""
    if expected is not None and before.version != expected:
        raise OtherVersion(
            f"the record is at version {before.version}, the step expects {expected}",
            path="params.expected_version",
            hint="read the record again and plan from there, or leave expected_version out",
        )


def changed_text(before: Before, changes: dict[str, Any], policy: Policy) -> str:
    """The record with its changes, as canonical JSON, within the policy's limits."""
    after = merged(before.text, changes)
    keys, depth = shape(after)
    refuse_more(depth, policy.record_depth, "record_depth", "levels", RecordTooDeep)
    refuse_more(keys, policy.record_keys, "record_keys", "keys", RecordTooLarge)
    after_text = canonical_text(after, exact_integers=True)
    refuse_more(len(after_text.encode()), policy.record_bytes, "record_bytes", "bytes", RecordTooLarge)
    return after_text


def merged(before_text: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The content of a record after these changes."""
    return {**json.loads(before_text), **changes}


def shape(record: dict[str, Any]) -> tuple[int, int]:
    """How many keys there are at all depths together, and how deep objects and lists lie within one another."""
    keys = depth = 0
    level: list[Any] = [record]
    while level:
        depth += 1
        objects = [value for value in level if isinstance(value, dict)]
        keys += sum(map(len, objects))
        inner = chain(*(one.values() if isinstance(one, dict) else one for one in level))
        level = [value for value in inner if isinstance(value, dict | list)]
    return keys, depth


def refuse_more(count: int, most: int, field: str, unit: str, error: type[PermanentError]) -> None:
    """An error of this kind, if it is more than the policy's field allows."""
    if count > most:
        which = f"{field} of the policy, {env_name(field)}"
        message = f"the record would have {count} {unit}, at most {most} are allowed ({which})"
        raise error(message, path="params.changes", hint=_MENDS[field])


def write_record(connection: Connection, before: Before, after_text: str, now: int) -> None:
    """The record's next version."""
    after = {"version": before.version + 1, "data_text": after_text, "updated_at": now}
    connection.execute(update(records).where(records.c.entity_id == before.entity_id).values(**after))


def write_change(connection: Connection, ctx: Context, before: Before, now: int) -> None:
    """What the record was before this step, for whoever has to undo or explain it. Of a step that a person had done
    once more under a new key: before it was done last.
    """
    change = {
        "run_id": ctx.run_id,
        "step_id": ctx.step_id,
        "entity_id": before.entity_id,
        "version_before": before.version,
        "version_after": before.version + 1,
        "before_text": before.text if before.version else None,
        "created_at": now,
    }
    connection.execute(delete(record_changes).where(of_step(ctx)))
    connection.execute(record_changes.insert().values(**change))


def of_step(ctx: Context) -> ColumnElement[bool]:
    """This step's change."""
    return and_(record_changes.c.run_id == ctx.run_id, record_changes.c.step_id == ctx.step_id)


@mutate_record.compensation
def restore_record(params: MutateRecord, _: RecordMutated | None, ctx: Context) -> None:
    """Give a record the content it had before the step, as a new version, if nobody else has changed it since.

    A record that the step made is left empty: versions never go back. RecordChangedSince: nothing is touched.
    """
    ledger = ctx.ledger()
    with ledger.begin() as connection:
        ctx.effect(connection, None)
        change = own_change(connection, ctx)
        if change is not None:
            record = locked_record(connection, change.entity_id)
            refuse_changed_since(connection, change, record)
            refuse_other_content(record, merged(change.before_text or "{}", params.changes), change)
            write_record(connection, record, change.before_text or "{}", ledger.now_ms())
            mark_undone(connection, ctx, record.version + 1)


def own_change(connection: Connection, ctx: Context) -> Row[Any] | None:
    """What this step committed; None where it committed nothing."""
    return connection.execute(select(record_changes).where(of_step(ctx))).one_or_none()


def refuse_changed_since(connection: Connection, change: Row[Any], record: Before) -> None:
    """Every version since the step's own must be a change that was undone, or its undoing: two for each."""
    column = record_changes.c
    later = and_(column.entity_id == change.entity_id, column.version_after > change.version_after)
    undone = select(func.count()).where(later, column.undone_version.is_not(None))
    if record.version - change.version_after != 2 * connection.execute(undone).scalar_one():
        versions = f"is at version {record.version}; this step made version {change.version_after}"
        raise changed_since(f"record {record.entity_id} {versions}")


def refuse_other_content(record: Before, left: dict[str, Any], change: Row[Any]) -> None:
    """A hand that changed the record past `mutate_record` has left its version as it was."""
    content = canonical_text(json.loads(record.text), exact_integers=True)
    if content != canonical_text(left, exact_integers=True):
        what = f"record {record.entity_id} has not the content of version {change.version_after}, which this step made"
        raise changed_since(what)


def changed_since(what: str) -> RecordChangedSince:
    """The undo is given up; what a person may do."""
    hint = "compare with before_text in record_changes, and set the record right by hand"
    return RecordChangedSince(what, path="params.entity_id", hint=hint)


def mark_undone(connection: Connection, ctx: Context, version: int) -> None:
    """Remember which version took the step's change back."""
    connection.execute(update(record_changes).where(of_step(ctx)).values(undone_version=version))


@mutate_record.simulate
def foresee_change(params: MutateRecord) -> str:
    """What a dry run tells."""
    names = ", ".join(sorted(params.changes)) or "nothing"
    at = "" if params.expected_version is None else f", if it is at version {params.expected_version}"
    return f"set {names} of the record {params.entity_id}{at}"
