"""Brings what happened in the state store to the ledger: each transition, and where the run and its steps stand now.

A batch of one shard's stream is read behind the ledger's cursor. For each run in it one snapshot is taken, of the steps
that moved; it may be newer than the batch, never older. Rows and cursor are one transaction, and only what lies before
the cursor is dropped from the stream. So a pass may die anywhere: what it had not written is read again.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from orchestrator.ledger import Ledger
from orchestrator.ledger.history import Batch, Happened, RunReport, StepReport
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.stream import BEGINNING, Entry, Snapshot
from orchestrator.supervisors.passes import Counts, each_shard
from schemas.ids import RunRef

NAME = "drain-ledger"
AT_ONCE: Final = 500
ROUNDS: Final = 8  # of one shard in one pass: the other supervisors share the process


def run_once(store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over all shards. Ends early while the store is away; LedgerUnavailable is raised."""
    cursors = ledger.history.cursors(settings.namespace)

    def look(shard: int) -> Counts:
        if not store.runs.begin_pass(shard, "drain", round(settings.sweep_s * 1000)):
            return Counts(skipped=1)
        return drain(store, ledger, settings.namespace, shard, cursors.get(shard, BEGINNING))

    return each_shard(NAME, range(store.shards), look)


def drain(store: Store, ledger: Ledger, namespace: str, shard: int, cursor: str) -> Counts:
    """Some batches of one shard. moved: runs whose standing was written."""
    total = Counts()
    for _ in range(ROUNDS):
        entries = store.stream.read(shard, cursor, AT_ONCE)
        if not entries:
            break
        batch = batch_of(store, namespace, shard, cursor, entries)
        if not ledger.history.take(batch):
            break
        cursor = batch.last_id
        total += Counts(taken=len(entries), moved=len(batch.runs))
    return total


def batch_of(store: Store, namespace: str, shard: int, cursor: str, entries: Sequence[Entry]) -> Batch:
    """What the ledger is told of these transitions. A run that the store has let go keeps its transitions only."""
    steps_of: dict[RunRef, dict[str, None]] = {}
    for entry in entries:
        steps_of.setdefault(entry.ref, {}).update(dict.fromkeys(entry.step_ids))
    runs: list[RunReport] = []
    steps: list[StepReport] = []
    for ref, step_ids in steps_of.items():
        seen = store.stream.snapshot(ref, step_ids)
        if seen is not None:
            runs.append(run_report(ref, seen))
            steps.extend(step_reports(ref, seen))
    return Batch(namespace, shard, cursor, entries[-1].id, [happened(entry) for entry in entries], runs, steps)


def happened(entry: Entry) -> Happened:
    """A transition as the ledger keeps it."""
    return Happened(entry.ref.run_id, entry.version, entry.generation, entry.at, entry.event, entry.fields)


def run_report(ref: RunRef, seen: Snapshot) -> RunReport:
    """Where the run stands."""
    fields = seen.fields
    version, generation = int(fields["version"]), int(fields["generation"])
    return RunReport(ref.run_id, version, generation, fields["status"], json.dumps(fields, sort_keys=True))


def step_reports(ref: RunRef, seen: Snapshot) -> Iterator[StepReport]:
    """Where its steps stand."""
    version = int(seen.fields["version"])
    for step_id, record in seen.steps.items():
        told = (seen.results.get(step_id), seen.errors.get(step_id))
        yield StepReport(ref.run_id, step_id, version, json.loads(record)["status"], record, *told)
