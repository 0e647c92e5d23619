"""Ending a lost claim where the action can be asked what became of it.

A supervisor cannot import actions. For a step whose effect may have happened, and whose action has a probe, it sends
this message instead of deciding: the row is closed, the probe asked, and the claim ended by what is known then. Nothing
is counted. If no worker can answer within MANDOR_DISPATCH_DEADLINE_S, the supervisor ends the claim as doubtful.
"""

import time

from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.store.replies import Granted
from orchestrator.store.views import StepState
from orchestrator.supervisors.reclaim_stale_leases import lapsed, tell_ended
from orchestrator.telemetry import logs
from schemas.ids import close_task_id
from schemas.messages import CloseMessage, StepMessage
from schemas.states import Fact, StepStatus
from workers import givenup, orphans, probing
from workers.attempt import Attempt
from workers.effects import Closing, close_row
from workers.failures import UnknownAction
from workers.identity import worker_id
from workers.reports import Nothing, Report, word
from workers.services import Services


def close_lost(message: CloseMessage, services: Services) -> Report:
    """End the step's claim, if it is lost and nobody has ended it yet."""
    job_id = close_task_id(message.run_id, message.step_id)
    with logs.identity(run_id=message.run_id, job_id=job_id, step_id=message.step_id, worker_id=worker_id()):
        try:
            return _deliver(message, services)
        except (StoreUnavailable, LedgerUnavailable, UnknownAction) as cannot:
            return Nothing(cannot.kind)


def _deliver(message: CloseMessage, services: Services) -> Report:
    step = services.store.views.step(message.ref, message.step_id)
    if step is None or step.status != StepStatus.RUNNING or not lapsed(step, services.store.now_ms()):
        return Nothing("not_due")
    attempt = Attempt(message, as_it_was(message, services, step), "", time.monotonic(), services)
    with attempt.leaving:
        closing = _find_out(attempt, step)
    guard = services.store.guard
    verdict = guard.expire_lease(message.ref, message.step_id, step.fence, closing.fact, closing.result_text)
    tell_ended("probe", step.fence, step.effect, verdict, noticed=not step.dead)
    givenup.after_last_end(message, services, verdict)
    services.publisher.publish(getattr(verdict, "publish", ()))
    return Nothing(word(verdict))


def _find_out(attempt: Attempt, step: StepState) -> Closing:
    closing = close_row(attempt.services.ledger, attempt.effect_name)
    if closing.fact is not Fact.MAYBE:
        return closing
    dead = step.dead and orphans.END_WITH_CHILD  # what the child has started may still be about to act
    return probing.ask(attempt, dead=dead, limit_s=step.limit_ms / 1000)


def as_it_was(message: StepMessage, services: Services, step: StepState) -> Granted:
    """What the step's last attempt was granted, from what the store still knows. Its lease is nobody's to renew."""
    views, ref = services.store.views, message.ref
    run, text = views.run(ref), views.step_text(ref, step.id)
    assert run is not None
    assert text is not None
    return Granted(
        fence=step.fence,
        attempt=step.attempt,
        lease_ms=0,
        lease_end=step.lease_end,
        limit_ms=step.limit_ms,
        stop_grace_ms=0,
        effect=step.effect,
        index=step.index,
        token=step.token,
        step_text=text,
        inputs={name: views.result(ref, name) or "null" for name in step.refs},
        policy_text=run.policy_text,
        policy_hash=run.policy_hash,
        context_hash=run.context_hash,
        plan_id=run.plan_id or "",
        version=run.version,
        session_id=run.session_id,
        request_id=run.request_id,
        attempt_group=step.group,
    )
