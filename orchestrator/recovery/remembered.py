"""What is known of a run that is to be built again: what the ledger was told, or what the state store still has of it,
if that is newer or as new. Reads only; what is made of it is decided in rebuild.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from orchestrator import startover, submission, undoagain
from orchestrator.ledger import Decision, Ledger, LedgerRun
from orchestrator.ledger.history import StepReport
from orchestrator.recovery import rebuild
from orchestrator.recovery.rebuild import Known
from orchestrator.settings import Settings
from orchestrator.startover import Again
from orchestrator.store import Store
from orchestrator.store.new import plan_from_text
from orchestrator.store.stream import Snapshot
from schemas.ids import RunRef
from schemas.states import StepStatus


def known(store: Store, ledger: Ledger, settings: Settings, run: LedgerRun) -> Known | None:
    """All that is known of a run. None: not enough to build it."""
    text = ledger.history.admitted_plan(run.run_id, run.generation)
    plan = plan_from_text(text) if text else None
    blank = Known(run, submission.to_create(run, settings), plan)
    # of two that are equally new the store's says more: taking a server over moves fences, and no version
    newest = max((_seen(store, blank), _heard(ledger, blank)), key=lambda one: one.standing)
    found = _as_ordered(ledger, run, newest)
    if plan is not None or run.plan_hash is None:
        return found
    stored = ledger.plan(run.run_id, run.generation)
    return rebuild.planned_anew(found, stored.plan_text if stored else None)


def _as_ordered(ledger: Ledger, run: LedgerRun, heard: Known) -> Known:
    """A run as people have had it started over, or undone again, since it was heard of."""
    made, generation = ledger.decisions_of(run.run_id), heard.standing[0]
    undone, ordered = undoagain.began(made, generation, run.generation), _ordered(made, run, generation)
    found = heard if undone and not ordered else rebuild.of_this_generation(heard, ordered)
    return rebuild.undone_again(found, undoagain.begun(made), run.generation if undone and heard.fields else None)


def _ordered(made: Sequence[Decision], run: LedgerRun, heard_generation: int) -> list[Again]:
    """What was to be done again each time that the run was started over since it was heard of."""
    if heard_generation >= run.generation:
        return []
    since = (one for one in made if one.kind == "retry" and heard_generation <= one.generation < run.generation)
    return [startover.wanted(one.details_text) for one in since if (one.outcome or "retried").startswith("retried")]


def _heard(ledger: Ledger, blank: Known) -> Known:
    history, run_id = ledger.history, blank.row.run_id
    report, steps = history.run(run_id), history.steps(run_id)
    if report is None:
        return blank
    return replace(
        blank,
        fields=report.fields(),
        records={name: json.loads(step.record_text) for name, step in steps.items()},
        results={name: text for name, step in steps.items() if (text := _result(step)) is not None},
        errors={name: step.error_text for name, step in steps.items() if step.error_text},
    )


def _result(step: StepReport) -> str | None:
    done = (StepStatus.COMPLETED, StepStatus.COMPENSATING, StepStatus.COMPENSATED, StepStatus.COMPENSATION_FAILED)
    return step.result_text if step.status in done else None


def _seen(store: Store, blank: Known) -> Known:
    seen = store.restoring.remains(RunRef(blank.row.run_id, blank.row.session))
    if seen is None or not _is_whole(seen):
        return blank
    records = {name: json.loads(text) for name, text in seen.steps.items()}
    return replace(blank, fields=seen.fields, records=records, results=seen.results, errors=seen.errors)


def _is_whole(seen: Snapshot) -> bool:
    """Whether none of the keys is gone in which this run lies: its steps would pass for such as have not moved."""
    steps, results = (int(seen.fields.get(name, 0)) for name in ("total", "n_completed"))
    return "version" in seen.fields and len(seen.steps) == steps and len(seen.results) >= results
