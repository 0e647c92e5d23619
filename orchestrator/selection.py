"""Runs by what they are instead of by their ids: for decisions about many at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.ledger import Ledger, ListedRun, RunFilter
from orchestrator.listing import in_ledger
from orchestrator.store import Store
from schemas.ids import RunRef
from schemas.states import RUN_RETRIABLE, RUN_TERMINAL, RunStatus, StepStatus

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Target:
    """What a decision would be about. status: how the run stood when it was looked at; step_id: None for all of it."""

    run_id: str
    status: RunStatus
    step_id: str | None = None


def find(ledger: Ledger, store: Store, namespace: str, wanted: RunFilter) -> Iterator[Target]:
    """The runs, newest first. Without a status those that have not ended, or (`ended`) those that can be started over.

    How a run stands that has not ended, only the store knows.
    """
    for row, status in _found(ledger, store, namespace, wanted):
        yield Target(row.run_id, status)


def find_waiting(ledger: Ledger, store: Store, namespace: str, wanted: RunFilter) -> Iterator[Target]:
    """The steps that wait for approval in such runs; of one action, where that is asked for."""
    for row, status in _found(ledger, store, namespace, wanted):
        for step in store.views.steps(RunRef(row.run_id, row.session)):
            if step.status == StepStatus.WAITING_APPROVAL and wanted.action in (None, step.action):
                yield Target(row.run_id, status, step.id)


def _found(ledger: Ledger, store: Store, namespace: str, wanted: RunFilter) -> Iterator[tuple[ListedRun, RunStatus]]:
    asked = in_ledger(wanted, wanted.status) if wanted.status else replace(wanted, ended=bool(wanted.ended))
    asked, before = replace(asked, namespace=namespace), None
    while page := ledger.listed(PAGE, before, asked):
        for row in page:
            status = row.status if asked.ended else _stands(store, row)
            if status is not None and _is_wanted(status, wanted):
                yield row, status
        before = page[-1].run_id


def _is_wanted(status: RunStatus, wanted: RunFilter) -> bool:
    if wanted.status is None:
        return not wanted.ended or status in RUN_RETRIABLE
    return status == wanted.status


def _stands(store: Store, row: ListedRun) -> RunStatus | None:
    """How a run stands that has not ended; None where it has, or nobody knows."""
    state = store.views.run(RunRef(row.run_id, row.session))
    return None if state is None or state.status in RUN_TERMINAL else RunStatus(state.status)
