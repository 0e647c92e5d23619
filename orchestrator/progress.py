"""The end of a run: the store settles it, the ledger remembers it, the store is told so, Celery's keys are removed.

A failing run whose steps have had effects does not end there: they are undone first, which begins here as well.

Each step may be repeated, and until the third is done the run is due: a crash between any two is ended by the
supervisor that settles runs. Three may ask for it: the last step's worker, the chord's body, that supervisor.
"""

import json
from collections.abc import Iterable

from orchestrator import compensation, dead_letters, dispatch, late_effects
from orchestrator.audit import audit
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.recalled import Reads
from orchestrator.settings import settings
from orchestrator.store import Store
from orchestrator.store.replies import Compensating, Owing, Settled
from orchestrator.store.runs import Settling
from orchestrator.telemetry import aftermath, events
from orchestrator.telemetry.logs import bind, emit
from schemas.ids import RunRef
from schemas.states import RunStatus


def settle(app: App, store: Store, ledger: Ledger, ref: RunRef, generation: int) -> Settling:
    """See whether this generation of a run has ended, and if so bring its end everywhere."""
    reply = store.runs.settle(ref, generation, undo=False)
    if isinstance(
        reply, Owing
    ):  # the ledger knows it first: a run that was once undone never goes on as if it were not
        ledger.start_undoing(ref.run_id, generation)
        reply = store.runs.settle(ref, generation)
    if isinstance(reply, Settled):
        _identify(store, ref)
        _finish(app, store, ledger, ref, reply)
    if isinstance(reply, Compensating):
        emit(aftermath.UndoBegun(len(reply.publish)))
        dispatch.publish(app, reply.publish)
    return reply


def settle_due(app: App, store: Store, ledger: Ledger, ref: RunRef) -> Settling:
    """The same for whatever generation the run is in."""
    state = store.views.run(ref)
    return settle(app, store, ledger, ref, state.generation if state else 1)


def _identify(store: Store, ref: RunRef) -> None:
    """The last line of a run's life carries what the others carry."""
    state = store.views.run(ref)
    if state is not None:
        bind(
            request_id=state.request_id,
            session_id=state.session_id,
            run_id=ref.run_id,
            policy_hash=state.policy_hash,
            state_version=state.version,
        )


def _finish(app: App, store: Store, ledger: Ledger, ref: RunRef, end: Settled) -> None:
    status, reason = RunStatus(end.status), end.reason or None
    write_owed_letters(app, store.views, ledger, ref, status, end.generation)
    errors = error_kinds(store, ref)
    if ledger.end_run(ref.run_id, end.generation, status, reason, end.version, end.ended_at, errors):
        emit(events.RunSettled(end.status, end.reason))  # at once: who comes to the end after us does not tell it again
        _look_back(store, ref)
    store.runs.confirm_end(ref, end.generation)
    dispatch.close_chord(app, ref, end.generation)


def _look_back(store: Store, ref: RunRef) -> None:
    """Once, when a run has ended: is its history as it must be?"""
    if settings().metrics:
        for fault in audit(store, ref):
            emit(fault)


def write_owed_letters(app: App, views: Reads, ledger: Ledger, ref: RunRef, status: RunStatus, generation: int) -> None:
    """Those that whoever gave something up, after the store said so, may have died before writing."""
    if status is RunStatus.SUCCEEDED:
        return
    dead_letters.report_planner(app, views, ledger, ref)
    dead_letters.report_given_up(app, views, ledger, ref, generation)
    if status in (RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED):
        late_effects.tell_all(app, views, ledger, ref, generation)
    if status is RunStatus.COMPENSATION_FAILED:
        compensation.report_all(app, views, ledger, ref)


def error_kinds(store: Store, ref: RunRef) -> frozenset[str]:
    """What went wrong in a run, in the words that programs know: of its planning, its steps and its undoing."""
    state = store.views.run(ref)
    return kinds_of([*store.views.errors(ref).values(), state.error_text if state else None])


def kinds_of(error_texts: Iterable[str | None]) -> frozenset[str]:
    """The words of these errors, each as JSON."""
    return frozenset(str(json.loads(text).get("kind", "error")) for text in error_texts if text)
