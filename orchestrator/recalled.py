"""A run that the state store has let go, or lost: as the ledger was last told of it, in the store's own values.

What the ledger itself knows of the run's end counts more than what it was told.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.ledger import Ledger, LedgerRun
from orchestrator.ledger.history import Happened, RunReport, StepReport
from orchestrator.store.views import UNDO, Event, RunState, StepState, Views, event_of, run_state, step_state
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus


@dataclass(frozen=True, slots=True)
class Recalled:
    """run, steps (in the plan's order), results and errors as the store's reads would have answered."""

    run: RunState
    steps: list[StepState]
    results: Mapping[str, str]
    errors: Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """The store's reads of runs that the store has lost, answered from what the ledger was told of them."""

    ledger: Ledger
    _found: dict[str, Recalled | None] = field(default_factory=dict)

    def run(self, ref: RunRef) -> RunState | None:
        known = self._known(ref)
        return known.run if known else None

    def steps(self, ref: RunRef) -> list[StepState]:
        known = self._known(ref)
        return known.steps if known else []

    def step(self, ref: RunRef, step_id: str) -> StepState | None:
        return next((step for step in self.steps(ref) if step.id == step_id), None)

    def errors(self, ref: RunRef) -> Mapping[str, str]:
        known = self._known(ref)
        return known.errors if known else {}

    def undo_error(self, ref: RunRef, step_id: str) -> str | None:
        return self.errors(ref).get(f"{step_id}{UNDO}")

    def result(self, ref: RunRef, step_id: str) -> str | None:
        known = self._known(ref)
        return known.results.get(step_id) if known else None

    def step_text(self, ref: RunRef, step_id: str) -> str | None:
        row = self.ledger.run(ref.run_id)
        return step_texts(self.ledger, row).get(step_id) if row else None

    def events(self, ref: RunRef) -> list[Event]:
        return events(self.ledger, ref.run_id)

    def _known(self, ref: RunRef) -> Recalled | None:
        if ref.run_id not in self._found:
            row = self.ledger.run(ref.run_id)
            self._found[ref.run_id] = recall(self.ledger, row) if row else None
        return self._found[ref.run_id]


Reads = Views | Told


def recall(ledger: Ledger, row: LedgerRun) -> Recalled | None:
    """All that the ledger was told of a run; None where that is nothing."""
    told = ledger.history.run(row.run_id)
    if told is None:
        return None
    reports, texts = ledger.history.steps(row.run_id), step_texts(ledger, row)
    steps = [step_state(step_id, report.record_text, texts.get(step_id)) for step_id, report in reports.items()]
    in_order = sorted((as_ended(row, step) for step in steps), key=lambda step: step.index)
    return Recalled(run_of(row, told), in_order, results_of(in_order, reports), errors_of(reports))


def events(ledger: Ledger, run_id: str) -> list[Event]:
    """The transitions that the ledger was told of, oldest first."""
    return [event(one) for one in ledger.history.events(run_id)]


def event(one: Happened) -> Event:
    """A transition as the store's stream has it."""
    named = {"event": one.event, "version": str(one.version), "at": str(one.at)}
    return event_of("", {"steps": "", **one.fields, **named})


def run_of(row: LedgerRun, told: RunReport) -> RunState:
    """The run's hash, with the end that the ledger has of it."""
    state = run_state({**told.fields(), "policy": row.policy_text})
    if row.ended_at is None:
        return state
    version, reason = max(row.version, told.version), row.reason or ""
    return replace(state, status=row.status, reason=reason, version=version, ended_at=row.ended_at)


def as_ended(row: LedgerRun, step: StepState) -> StepState:
    """A run that has succeeded has completed every step, whether the ledger was told of it or not."""
    return replace(step, status=StepStatus.COMPLETED) if row.status == RunStatus.SUCCEEDED else step


def step_texts(ledger: Ledger, row: LedgerRun) -> dict[str, str]:
    """The admitted steps, each as canonical JSON."""
    plan = ledger.history.admitted_plan(row.run_id, row.generation)
    return {step["id"]: step["text"] for step in json.loads(plan)["steps"]} if plan else {}


def results_of(steps: list[StepState], reports: Mapping[str, StepReport]) -> dict[str, str]:
    """JSON texts of the results, in the plan's order."""
    found = {step.id: reports[step.id].result_text for step in steps}
    return {step_id: text for step_id, text in found.items() if text is not None}


def errors_of(reports: Mapping[str, StepReport]) -> dict[str, str]:
    """JSON texts of the last errors."""
    return {step_id: report.error_text for step_id, report in reports.items() if report.error_text is not None}
