"""Ends waits for a person that have lasted as long as the policy allows: no answer counts as failure.

What was waited for is written into a letter before the run moves on, so that somebody still reads it.
"""

from orchestrator import dead_letters
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Due, Failed, InDoubt, Publish
from orchestrator.store.views import StepState
from orchestrator.supervisors.passes import Counts, Duties, walk
from orchestrator.telemetry import decided
from orchestrator.telemetry.logs import emit
from schemas.ids import RunRef
from schemas.states import RunStatus, StepStatus

NAME = "end-waits"
REASONS = {
    StepStatus.WAITING_APPROVAL: "nobody approved this step in time",
    StepStatus.IN_DOUBT: "nobody said in time whether its effect happened",
}


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over waits that are over."""

    def handle(due: Due) -> Publish | None:
        return None if due.step_id is None else end_wait(app, store, ledger, due.ref, due.step_id)

    return walk(app, store, Duties(NAME, "waits", handle, round(settings.sweep_s * 1000)))


def end_wait(app: App, store: Store, ledger: Ledger, ref: RunRef, step_id: str) -> Publish | None:
    """Write the letter, then move the step. None: somebody has answered, or the wait lasts."""
    step = store.views.step(ref, step_id)
    waited_for = "" if step is None else still_waits(store, ref, step)
    if step is not None and waited_for:
        write_letter(app, store, ledger, ref, step)
    verdict = store.runs.wait_over(ref, step_id)
    if not isinstance(verdict, Failed | InDoubt):
        return None
    emit(decided.WaitOver(waited_for))
    return verdict.publish


def still_waits(store: Store, ref: RunRef, step: StepState) -> str:
    """What the step has waited for too long; empty where the store will say that there is nothing to end."""
    run = store.views.run(ref)
    late = step.status in REASONS and 0 < step.wait_until <= store.now_ms()
    return step.status if late and run is not None and run.status == RunStatus.RUNNING else ""


def write_letter(app: App, store: Store, ledger: Ledger, ref: RunRef, step: StepState) -> None:
    """One letter for each generation."""
    run = store.views.run(ref)
    content = {**dead_letters.story(store, ref, step), "waited_since": step.waiting_since}
    reason = REASONS[StepStatus(step.status)]
    dead_letters.about_step(app, ledger, ref, step.id, run.generation if run else 1, reason, content, cause="wait")
