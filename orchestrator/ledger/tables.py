"""The ledger's tables. Times are milliseconds since the epoch; columns named *_text hold JSON.

Migrations create them; this module is what queries are written against, and a test holds the two together.
"""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from schemas.dead_letter import DeadLetterKind, DeadLetterStatus
from schemas.states import RunStatus

REVISION = "0008"  # of the schema these tables describe
VERSION_TABLE = "mandor_ledger_version"
RUN_ID, STEP_ID, SHA256, NAMESPACE, FINGERPRINT, DELIVERY_ID = 36, 64, 64, 32, 12, 64
metadata = MetaData()


class EffectState(StrEnum):
    """What an effect row knows: nothing began, something may have begun, it happened."""

    NONE = "none"
    OPEN = "open"
    LANDED = "landed"


class DeliveryState(StrEnum):
    """What became of telling the end of a run: still to be told, told, unwanted (410), given up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DISABLED = "disabled"
    GIVEN_UP = "given_up"


def one_of(column: str, words: type[StrEnum] | tuple[str, ...]) -> CheckConstraint:
    """A check that a column holds one of some words."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


runs = Table(
    "runs",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("session", String(16), nullable=False),
    Column("session_id", Text),
    Column("request_id", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("submission_hash", String(SHA256), nullable=False),
    Column("submission_text", Text, nullable=False),
    Column("policy_text", Text, nullable=False),
    Column("policy_hash", String(SHA256), nullable=False),
    Column("context_hash", String(SHA256), nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
    Column("accepted_at", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("reason", Text),
    Column("version", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("planner", Text),
    Column("namespace", String(NAMESPACE), nullable=False, server_default=""),
    Column("callback", Text),
    one_of("status", RunStatus),
    CheckConstraint("generation >= 1", name="generation_counted"),
    Index("runs_by_time", "accepted_at", "run_id"),
    Index("runs_by_end", "ended_at", "run_id"),
    Index("runs_by_status", "status", "accepted_at", "run_id"),
    Index("runs_by_session", "session", "accepted_at", "run_id"),
    Index("runs_by_planner", "planner", "accepted_at", "run_id"),
)

# What a run is found by that it has several of: the actions of its plans, the kinds of errors it ended with.
run_words = Table(
    "run_words",
    metadata,
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), primary_key=True),
    Column("about", String(8), primary_key=True),
    Column("word", Text, primary_key=True),
    Column("accepted_at", BigInteger, nullable=False),
    one_of("about", ("action", "error")),
    Index("run_words_by_time", "about", "word", "accepted_at", "run_id"),
)

plans = Table(
    "plans",
    metadata,
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("plan_hash", String(SHA256), nullable=False),
    Column("plan_text", Text, nullable=False),
    Column("planner", Text),
    Column("created_at", BigInteger, nullable=False),
)

# One row for each answer that was paid for, written before it is judged.
planner_answers = Table(
    "planner_answers",
    metadata,
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("planner", Text, nullable=False),
    Column("raw_text", Text, nullable=False),
    Column("details_text", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("number >= 0", name="number_counted"),
)

# Rows of what came late and is not undone yet; the few among many that are looked for again and again.
OWED_LATE = "kind = 'late' AND state <> 'landed' AND closed_to = 0"

# No foreign key: a transactional action may keep its rows in the database of its own effect, where no runs are.
effects = Table(
    "effects",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("step_id", String(STEP_ID), primary_key=True),
    Column("kind", String(4), primary_key=True),
    Column("state", String(6), nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("closed_to", BigInteger, nullable=False),
    Column("landed_by", BigInteger, nullable=False),
    Column("late", Boolean, nullable=False),
    Column("token", Text),
    Column("result_text", Text),
    Column("updated_at", BigInteger, nullable=False),
    one_of("kind", ("do", "undo", "late")),
    one_of("state", EffectState),
    CheckConstraint("state <> 'landed' OR result_text IS NOT NULL", name="landed_has_result"),
    CheckConstraint("state <> 'open' OR since > 0", name="open_has_fence"),
    Index("effects_owed_late", "updated_at", sqlite_where=text(OWED_LATE), postgresql_where=text(OWED_LATE)),
)

# Fences whose attempt has itself told how it ended. Of its commit it may never hear, and tell it again.
ends_told = Table(
    "ends_told",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("step_id", String(STEP_ID), primary_key=True),
    Column("kind", String(4), primary_key=True),
    Column("fence", BigInteger, primary_key=True),
    Column("late", Boolean, nullable=False),
    one_of("kind", ("do", "undo", "late")),
)

epochs = Table(
    "epochs",
    metadata,
    Column("namespace", String(NAMESPACE), primary_key=True),
    Column("epoch", String(32), nullable=False),
    Column("shards", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("shards >= 1", name="shards_counted"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("step_id", String(STEP_ID)),
    Column("details_text", Text),
    Column("made_by", Text, nullable=False),
    Column("reason", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("outcome", Text),
    Column("done_at", BigInteger),
    CheckConstraint("(outcome IS NULL) = (done_at IS NULL)", name="done_has_outcome"),
    Index("decisions_by_run", "run_id"),
    Index("decisions_pending", "done_at", "created_at", "id"),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("dedup_hash", String(SHA256), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("run_id", String(RUN_ID)),
    Column("step_id", String(STEP_ID)),
    Column("reason", Text, nullable=False),
    Column("status", String(32), nullable=False),
    Column("content_text", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("fingerprint", String(FINGERPRINT), nullable=False, server_default=""),
    Column("action", Text),
    Column("planner", Text),
    Column("session_id", Text),
    Column("namespace", String(NAMESPACE), nullable=False, server_default=""),
    one_of("kind", DeadLetterKind),
    one_of("status", DeadLetterStatus),
    UniqueConstraint("dedup_hash", name="one_letter_per_cause"),
    Index("letters_by_time", "created_at", "id"),
    Index("letters_by_run", "run_id"),
    Index("letters_by_status", "status", "kind"),
    Index("letters_by_trouble", "status", "fingerprint", "created_at"),
)

# What people decided about letters. Whoever moves a letter from `open` writes the row, in one transaction.
letter_decisions = Table(
    "letter_decisions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("letter_id", String(128), ForeignKey("dead_letters.id"), nullable=False),
    Column("namespace", String(NAMESPACE), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("details_text", Text),
    Column("made_by", Text, nullable=False),
    Column("reason", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("outcome", Text),
    Column("done_at", BigInteger),
    CheckConstraint("(outcome IS NULL) = (done_at IS NULL)", name="done_has_outcome"),
    Index("letter_decisions_by_letter", "letter_id", "created_at"),
    Index("letter_decisions_pending", "done_at", "created_at", "id"),
)

records = Table(
    "records",
    metadata,
    Column("entity_id", String(36), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("data_text", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    CheckConstraint("version >= 0", name="version_counted"),
)

record_changes = Table(
    "record_changes",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("step_id", String(STEP_ID), primary_key=True),
    Column("entity_id", String(36), ForeignKey("records.entity_id"), nullable=False),
    Column("version_before", BigInteger, nullable=False),
    Column("version_after", BigInteger, nullable=False),
    Column("before_text", Text),
    Column("undone_version", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("entity_id", "version_after", name="one_change_per_version"),
    CheckConstraint("version_after = version_before + 1", name="version_steps_by_one"),
)

# Up to which generation the files of a run were let go. Written before the first of them is touched.
workspaces_gone = Table(
    "workspaces_gone",
    metadata,
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("gone_at", BigInteger, nullable=False),
)

# Files of runs that policy has kept. place: host and folder; left_out: why there is no copy, null where there is.
artifacts = Table(
    "artifacts",
    metadata,
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("place", Text, primary_key=True),
    Column("path", Text, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(SHA256)),
    Column("left_out", Text),
    Column("kept_at", BigInteger, nullable=False),
    CheckConstraint("(sha256 IS NULL) = (left_out IS NOT NULL)", name="kept_has_hash"),
)

OWED_DELIVERIES = "state = 'pending'"

# Ends of runs that somebody wants to be told of: the row is written with the end, in one transaction. attempts: grows
# by one with each claim, and so says which one is current; attempts_before: how many belong to earlier rounds, before a
# person had it sent again; taken_until: when it is not looked at, because a message or an attempt is under way.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", String(DELIVERY_ID), primary_key=True),
    Column("run_id", String(RUN_ID), ForeignKey("runs.run_id"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("namespace", String(NAMESPACE), nullable=False),
    Column("url", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("body_text", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("attempts_before", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("taken_until", BigInteger, nullable=False),
    Column("status_code", Integer),
    Column("error", String(32)),
    Column("created_at", BigInteger, nullable=False),
    Column("done_at", BigInteger),
    one_of("state", DeliveryState),
    CheckConstraint("(state = 'pending') = (done_at IS NULL)", name="done_has_time"),
    UniqueConstraint("run_id", "generation", name="one_delivery_per_end"),
    Index(
        "deliveries_owed",
        "namespace",
        "due_at",
        "id",
        sqlite_where=text(OWED_DELIVERIES),
        postgresql_where=text(OWED_DELIVERIES),
    ),
)
