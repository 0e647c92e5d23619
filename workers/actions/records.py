"""mutate_record: change a record in the ledger's database, in one transaction with the proof that it was done.

A record is a JSON object under a UUID, with a version that grows by one per change. Its keys are data and nothing else:
identity, version and times live in columns of their own, out of reach of `changes`.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from sqlalchemy import Connection, select, update

from orchestrator.ledger.engine import insert_absent
from orchestrator.ledger.tables import record_changes, records
from schemas.canonical import canonical_text
from schemas.ids import PLAN_ID as UUID_FORM
from workers.context import Context
from workers.outcomes import NoEffect, PermanentError
from workers.registry import action

MAX_RECORD_BYTES = 1024 * 1024


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


@action("mutate_record", effect="transactional")
def mutate_record(params: MutateRecord, ctx: Context) -> RecordMutated:
    """Merge changes into a record. Record, before-image and effect row are committed together or not at all."""
    ledger = ctx.ledger()
    with ledger.begin() as connection:
        before = locked_record(connection, params.entity_id)
        result = RecordMutated(
            entity_id=params.entity_id, version_before=before.version, version_after=before.version + 1
        )
        ctx.effect(connection, result)  # before the writes: for a step that was applied already this ends the block
        write_record(connection, before, merged(before, params.changes), ledger.now_ms())
        write_change(connection, ctx, before, ledger.now_ms())
    return result


def locked_record(connection: Connection, entity_id: str) -> Before:
    """The record, held until the transaction ends; one that is not there begins empty at version 0."""
    insert_absent(connection, records, {"entity_id": entity_id, "version": 0, "data_text": "{}", "updated_at": 0})
    row = connection.execute(select(records).where(records.c.entity_id == entity_id).with_for_update()).one()
    return Before(entity_id, row.version, row.data_text)


def merged(before: Before, changes: dict[str, Any]) -> str:
    """The record with its changes, as canonical JSON; integers keep their digits."""
    after_text = canonical_text({**json.loads(before.text), **changes}, exact_integers=True)
    size = len(after_text.encode())
    if size > MAX_RECORD_BYTES:
        message = f"the record would have {size} bytes, at most {MAX_RECORD_BYTES} are allowed"
        raise RecordTooLarge(message, path="changes", hint="keep large values in files")
    return after_text


def write_record(connection: Connection, before: Before, after_text: str, now: int) -> None:
    """The record's next version."""
    after = {"version": before.version + 1, "data_text": after_text, "updated_at": now}
    connection.execute(update(records).where(records.c.entity_id == before.entity_id).values(**after))


def write_change(connection: Connection, ctx: Context, before: Before, now: int) -> None:
    """What the record was before this step, for whoever has to undo or explain it."""
    change = {
        "run_id": ctx.run_id,
        "step_id": ctx.step_id,
        "entity_id": before.entity_id,
        "version_before": before.version,
        "version_after": before.version + 1,
        "before_text": before.text if before.version else None,
        "created_at": now,
    }
    connection.execute(record_changes.insert().values(**change))
