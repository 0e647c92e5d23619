"""Ends the claims whose holder has stopped renewing: worker killed, host gone, process frozen.

The effect row is closed before the store is told, so that a holder that wakes up can start and report nothing more;
what the row says decides, in the store, whether the step is tried again.
"""

from orchestrator.dispatch import App
from orchestrator.ledger import Ledger, fact
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import Due, Fenced, NotDue, NotLapsed, Publish, UnknownRun
from orchestrator.store.views import StepState
from orchestrator.supervisors.passes import Counts, Duties, walk
from orchestrator.telemetry import events
from orchestrator.telemetry.logs import emit
from schemas.ids import RunRef
from schemas.states import EffectClass, Fact, StepStatus

NAME = "reclaim-stale-leases"


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over lapsed leases of steps and of planning."""

    def handle(due: Due) -> Publish | None:
        if due.step_id is None:
            return reclaim_planning(store, due.ref)
        return reclaim_step(store, ledger, due.ref, due.step_id)

    return walk(app, store, Duties(NAME, "leases", handle, round(settings.sweep_s * 1000)))


def reclaim_planning(store: Store, ref: RunRef) -> Publish | None:
    """The planner's process is gone: planned again, or the run has failed."""
    reply = store.runs.expire_plan(ref)
    if isinstance(reply, NotDue | UnknownRun):
        return None
    return reply.publish


def reclaim_step(store: Store, ledger: Ledger, ref: RunRef, step_id: str) -> Publish | None:
    """Close, then expire. None: the holder renewed meanwhile, or the claim had ended.

    Once the row is closed the claim is ended even if its holder has renewed since: it could not finish any more.
    """
    step = store.views.step(ref, step_id)
    if step is not None and not lapsed(step, store.now_ms()):
        return None
    fence = step.fence if step else 0
    known, result_text = close(ledger, ref, step) if step else (Fact.NONE, "")
    verdict = store.guard.expire_lease(ref, step_id, fence, known, result_text)
    if isinstance(verdict, NotLapsed | Fenced | UnknownRun):
        return None
    emit(events.ClaimEnded(NAME, fence, type(verdict).__name__))
    return verdict.publish


def lapsed(step: StepState, now_ms: int) -> bool:
    """Whether nobody keeps the claim any more. Closing the row of one that is kept would waste its work."""
    return step.dead or step.status != StepStatus.RUNNING or step.lease_end <= now_ms


def close(ledger: Ledger, ref: RunRef, step: StepState) -> tuple[Fact, str]:
    """What became of the effect of a running step's claim, and its result if it landed. Pure steps have no row."""
    effect = EffectClass(step.effect)
    if effect is EffectClass.PURE or step.status != StepStatus.RUNNING:
        return Fact.NONE, ""
    row = ledger.effects.close(ref.run_id, step.id, "do", step.fence)
    emit(events.EffectClosed(step.fence, row.state.value))
    return fact(effect, row.state), row.result_text or ""
