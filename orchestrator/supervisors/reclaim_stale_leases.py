"""Ends the claims whose holder has stopped renewing: worker killed, host gone, process frozen.

A claim to undo a step is ended in the same way. Where an effect may have happened and the action has a probe, a worker
is asked to end the claim (`workers.close`); only if none has for MANDOR_DISPATCH_DEADLINE_S it is called doubtful here.

The effect row is closed before the store is told, so that a holder that wakes up can start and report nothing more;
what the row says decides, in the store, whether the step is tried again. One that the store has given up on becomes a
dead letter; if that does not come through, the end of the run waits for it.
"""

from orchestrator import compensation
from orchestrator.dispatch import App
from orchestrator.ledger import Ledger, fact
from orchestrator.settings import Settings
from orchestrator.store import Store
from orchestrator.store.replies import (
    Dispatch,
    Due,
    Failed,
    Fenced,
    InDoubt,
    NotDue,
    NotLapsed,
    Publish,
    UndoGivenUp,
    UnknownRun,
)
from orchestrator.store.views import StepState
from orchestrator.supervisors.letters import keep_letter, keep_planners_letter
from orchestrator.supervisors.passes import Counts, Duties, walk
from orchestrator.telemetry import aftermath, events
from orchestrator.telemetry.logs import emit
from schemas.ids import RunRef
from schemas.states import EffectClass, Fact, StepStatus

NAME = "reclaim-stale-leases"
NOT_ENDED = NotLapsed | Fenced | UnknownRun  # the claim is kept, or was ended by somebody else


def run_once(app: App, store: Store, ledger: Ledger, settings: Settings) -> Counts:
    """One pass over lapsed leases of steps and of planning."""

    patience_ms = round(settings.dispatch_deadline_s * 1000)

    def handle(due: Due) -> Publish | None:
        if due.step_id is None:
            return reclaim_planning(app, store, ledger, due.ref)
        step = store.views.step(due.ref, due.step_id)
        if step is not None and step.status == StepStatus.COMPENSATING:
            return reclaim_undo(app, store, ledger, due.ref, step)
        return reclaim_step(app, store, ledger, due.ref, due.step_id, patience_ms)

    return walk(app, store, Duties(NAME, "leases", handle, round(settings.sweep_s * 1000)))


def reclaim_planning(app: App, store: Store, ledger: Ledger, ref: RunRef) -> Publish | None:
    """The planner's process is gone: planned again, or the run has failed, and a letter says so."""
    run = store.views.run(ref)
    reply = store.runs.expire_plan(ref)
    if run is None or isinstance(reply, NotDue | UnknownRun):
        return None
    if isinstance(reply, Failed):
        keep_planners_letter(NAME, app, store, ledger, ref)
    word, exhausted = type(reply).__name__, isinstance(reply, Failed)
    emit(events.ClaimEnded(NAME, run.plan.holder, word, "plan", noticed=not run.plan.dead, exhausted=exhausted))
    return reply.publish


def reclaim_step(
    app: App, store: Store, ledger: Ledger, ref: RunRef, step_id: str, patience_ms: int = 600_000
) -> Publish | None:
    """Close, then expire. None: the holder renewed meanwhile, or the claim had ended.

    Once the row is closed the claim is ended even if its holder has renewed since: it could not finish any more.
    patience_ms: how long a worker has to ask the action's probe.
    """
    step, now = store.views.step(ref, step_id), store.now_ms()
    if step is not None and not lapsed(step, now):
        return None
    fence = step.fence if step else 0
    known, result_text = close(ledger, ref, step) if step else (Fact.NONE, "")
    if step is not None and known is Fact.MAYBE and step.probe and now < step.lease_end + patience_ms:
        return ask_probe(store, ref, step)
    verdict = store.guard.expire_lease(ref, step_id, fence, known, result_text)
    if isinstance(verdict, NOT_ENDED):
        return None
    tell_ended(NAME, fence, step.effect if step else "", verdict, noticed=step is not None and not step.dead)
    if isinstance(verdict, Failed | InDoubt):
        keep_letter(NAME, app, store, ledger, ref, step_id)
    return verdict.publish


def tell_ended(by: str, fence: int, effect: str, verdict: object, *, noticed: bool) -> None:
    """The fact that a lost claim of a step was ended, if it was by this verdict: several may set out to end it.
    noticed: nobody had noticed the loss before."""
    if isinstance(verdict, NOT_ENDED):
        return
    unsafe = effect == EffectClass.ONCE
    exhausted = isinstance(verdict, Failed) or (isinstance(verdict, InDoubt) and not unsafe)
    emit(events.ClaimEnded(by, fence, type(verdict).__name__, noticed=noticed, exhausted=exhausted))


def tell_undo_ended(by: str, fence: int, verdict: object, *, noticed: bool) -> None:
    """The same of a claim to undo a step."""
    if not isinstance(verdict, NOT_ENDED):
        emit(events.ClaimEnded(by, fence, type(verdict).__name__, "undo", noticed=noticed))


def ask_probe(store: Store, ref: RunRef, step: StepState) -> Publish | None:
    """Have a worker end the claim. Sent again with each pass that finds it unended."""
    run = store.views.run(ref)
    if run is None:
        return None
    emit(aftermath.ProbeSent(step.fence))
    return (close_message(ref, run.generation, step),)


def close_message(ref: RunRef, generation: int, step: StepState) -> Dispatch:
    """The message that has the step's action asked what became of a lost attempt."""
    return Dispatch("close", ref, generation, step.id, step.index, step.queue, step.limit_ms)


def reclaim_undo(app: App, store: Store, ledger: Ledger, ref: RunRef, step: StepState) -> Publish | None:
    """Close, then expire, as for a step; whoever comes too late is fenced. An undo given up becomes a letter."""
    undo = step.undo
    if undo is None or (undo.holder and not undo.dead and undo.lease_end > store.now_ms()):
        return None
    known = close_undo(ledger, ref, step, undo.fence) if undo.holder else Fact.NONE
    verdict = store.guard.expire_undo(ref, step.id, undo.fence, known)
    if isinstance(verdict, NOT_ENDED):
        return None
    tell_undo_ended(NAME, undo.fence, verdict, noticed=not undo.dead)
    if isinstance(verdict, UndoGivenUp):
        told = store.views.step(ref, step.id)
        if told is not None and compensation.was_given_up(told, undo.fence):
            compensation.report(app, store.views, ledger, ref, told)
    return verdict.publish


def close_undo(ledger: Ledger, ref: RunRef, step: StepState, fence: int) -> Fact:
    """What became of a lost attempt to undo a step."""
    effect = EffectClass(step.effect)
    row = ledger.rows_of(effect).close(ref.run_id, step.id, "undo", fence)
    emit(events.EffectClosed(fence, row.state.value))
    return fact(effect, row.state)


def lapsed(step: StepState, now_ms: int) -> bool:
    """Whether nobody keeps the claim any more. Closing the row of one that is kept would waste its work."""
    return step.dead or step.status != StepStatus.RUNNING or step.lease_end <= now_ms


def close(ledger: Ledger, ref: RunRef, step: StepState) -> tuple[Fact, str]:
    """What became of the effect of a running step's claim, and its result if it landed. Pure steps have no row."""
    effect = EffectClass(step.effect)
    if effect is EffectClass.PURE or step.status != StepStatus.RUNNING:
        return Fact.NONE, ""
    row = ledger.rows_of(effect).close(ref.run_id, step.id, "do", step.fence)
    emit(events.EffectClosed(step.fence, row.state.value))
    return fact(effect, row.state), row.result_text or ""
