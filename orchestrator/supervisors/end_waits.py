"""Ends waits for a person that have lasted as long as the policy allows: no answer counts as failure.

What was waited for is written into a letter once the store says so: a person may answer in the last moment.
"""

from orchestrator.dispatch import App
from orchestrator.ledger import Ledger
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Due, Failed, InDoubt, Publish
from orchestrator.supervisors.letters import keep_letter
from orchestrator.supervisors.passes import Counts, Duties, walk
from orchestrator.telemetry import decided
from orchestrator.telemetry.logs import emit
from schemas.ids import RunRef

NAME = "end-waits"


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over waits that are over."""

    def handle(due: Due) -> Publish | None:
        return None if due.step_id is None else end_wait(app, store, ledger, due.ref, due.step_id)

    return walk(app, store, Duties(NAME, "waits", handle, round(settings.sweep_s * 1000)))


def end_wait(app: App, store: Store, ledger: Ledger, ref: RunRef, step_id: str) -> Publish | None:
    """Move the step, then write the letter. None: somebody has answered, or the wait lasts."""
    step = store.views.step(ref, step_id)
    verdict = store.runs.wait_over(ref, step_id)
    if not isinstance(verdict, Failed | InDoubt):
        return None
    emit(decided.WaitOver(step.status if step else ""))
    keep_letter(NAME, app, store, ledger, ref, step_id)
    return verdict.publish
