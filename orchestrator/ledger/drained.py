"""The tables of what the state store reports: where runs and steps stand, what happened, how far it was read; and of
how a state store that forgot is built again. In the ledger's metadata, as the other tables are.

No foreign keys: a report may come late, for a run that was pruned meanwhile.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, String, Table, Text

from orchestrator.ledger.tables import NAMESPACE, RUN_ID, STEP_ID, metadata

# The run's hash as it was at `version`, without the policy, which is in `runs`.
run_states = Table(
    "run_states",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("fields_text", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# A step's record as it was when its run had `version`.
step_states = Table(
    "step_states",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("step_id", String(STEP_ID), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("status", String(32), nullable=False),
    Column("record_text", Text, nullable=False),
    Column("result_text", Text),
    Column("error_text", Text),
    Column("updated_at", BigInteger, nullable=False),
)

# One row for each transition.
history = Table(
    "history",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("event", String(64), nullable=False),
    Column("fields_text", Text, nullable=False),
    Index("history_by_time", "at"),
)

# How far the stream of a shard is in the tables above.
cursors = Table(
    "cursors",
    metadata,
    Column("namespace", String(NAMESPACE), primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("last_id", String(41), nullable=False),
    Column("drained_at", BigInteger, nullable=False),
    CheckConstraint("shard >= 0", name="shard_counted"),
)

# The steps of an admitted plan with the limits and queues that they had, as the state store was given them.
admitted_plans = Table(
    "admitted_plans",
    metadata,
    Column("run_id", String(RUN_ID), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("plan_text", Text, nullable=False),
    Column("silence_ms", BigInteger, nullable=False),
)

# A shard that lost its memory, or has another server: which one, since when that is known, who sees to it until when
# and by which token, and what was done. Each time that it is taken begins an era of the shard, with numbers of its own.
restores = Table(
    "restores",
    metadata,
    Column("namespace", String(NAMESPACE), primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("found_at", BigInteger, primary_key=True),
    Column("cause", String(32), nullable=False),
    Column("server", Text, nullable=False),
    Column("era", Integer, nullable=False),
    Column("holder", Text),
    Column("token", String(32)),
    Column("lease_until", BigInteger, nullable=False),
    Column("done_at", BigInteger),
    Column("report_text", Text),
)
