"""mutate_record: change a record in the ledger's database, in one transaction with the proof that it was done.

A record is a JSON object under a UUID, with a version that grows by one per change. Its keys are data and nothing else:
identity, version and times live in columns of their own, out of reach of `changes`.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, select, update

from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.tables import record_changes, records
from orchestrator.settings import env_name
from schemas.canonical import canonical_text
from schemas.ids import PLAN_ID as UUID_FORM
from workers.context import Context
from workers.outcomes import NoEffect, PermanentError
from workers.registry import action


class RecordChangedSince(PermanentError, NoEffect):
    """Somebody has changed the record after the step that is to be undone: only a person can say what it should be."""

    kind = "record_changed_since"


class RecordTooLarge(PermanentError, NoEffect):
    """The changed record would exceed the limit; nothing was changed."""

    kind = "record_too_large"


def normal_uuid(value: str) -> str:
    """A UUID in its 36-character form, lower case, so that one record has one key."""
    if UUID_FORM.fullmatch(value) is None:
        raise ValueError("not a UUID in its 36-character form")
    return value.lower()


EntityId = Annotated[str, AfterValidator(normal_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]


class MutateRecord(BaseModel):
    """entity_id: the record, made if it is not there. changes: values by key; a key that is there is replaced whole,
    nested objects included, and null is stored as null.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entity_id: EntityId = Field(description="UUID of the record, 36 characters")
    changes: dict[str, JsonValue] = Field(description="new values of the record's top-level keys")


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
        ctx.effect(connection, result)  # before the writes: for a step that was applied already this ends the block
        write_record(connection, before, merged(before, params.changes, ctx.policy.record_bytes), ledger.now_ms())
        write_change(connection, ctx, before, ledger.now_ms())
    return result


def locked_record(connection: Connection, entity_id: str) -> Before:
    """The record, held until the transaction ends; one that is not there begins empty at version 0."""
    insert_absent(connection, records, {"entity_id": entity_id, "version": 0, "data_text": "{}", "updated_at": 0})
    row = connection.execute(select(records).where(records.c.entity_id == entity_id).with_for_update()).one()
    return Before(entity_id, row.version, row.data_text)


def merged(before: Before, changes: dict[str, Any], most: int) -> str:
    """The record with its changes, as canonical JSON of at most so many bytes; integers keep their digits."""
    after_text = canonical_text({**json.loads(before.text), **changes}, exact_integers=True)
    size = len(after_text.encode())
    if size > most:
        which = f"record_bytes of the policy, {env_name('record_bytes')}"
        message = f"the record would have {size} bytes, at most {most} are allowed ({which})"
        raise RecordTooLarge(message, path="changes", hint="keep large values in files")
    return after_text


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
def restore_record(_: MutateRecord, __: RecordMutated | None, ctx: Context) -> None:
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
        raise RecordChangedSince(
            f"record {record.entity_id} is at version {record.version}; this step made version {change.version_after}",
            hint="compare the versions, and set the record right by hand",
        )


def mark_undone(connection: Connection, ctx: Context, version: int) -> None:
    """Remember which version took the step's change back."""
    connection.execute(update(record_changes).where(of_step(ctx)).values(undone_version=version))


@mutate_record.simulate
def foresee_change(params: MutateRecord) -> str:
    """What a dry run tells."""
    return f"set {', '.join(sorted(params.changes)) or 'nothing'} of the record {params.entity_id}"
