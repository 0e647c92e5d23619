"""One delivery of one step's message, from the claim to what Celery is told.

    claim -> (close what a dead claim left) -> bind -> begin -> act -> finish -> commit or conclude -> publish -> report

Everything that decides is elsewhere: the guard's scripts decide who may try and what becomes of a try, the effect rows
what has happened, `failures` what an exception asks for. What is interrupted here, at any line, is finished by a later
delivery or a supervisor; docs/execution.md says by which.
"""

import time
from uuid import uuid4

from pydantic import BaseModel

from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.store.guard import Claim, Verdict
from orchestrator.store.replies import (
    Again,
    CloseFirst,
    Committed,
    Completed,
    Dispatch,
    Failed,
    Fenced,
    Granted,
    InDoubt,
    InputsTooLarge,
    NotDue,
    RetryAt,
    Stop,
    TooOften,
)
from orchestrator.supervisors.reclaim_stale_leases import close_message, tell_ended
from orchestrator.telemetry import aftermath, events, logs
from schemas.ids import step_task_id
from schemas.messages import Receipt, ReceiptStatus, StepMessage
from schemas.states import EffectClass, Fact, StepStatus
from workers import failures, givenup, probing, signs
from workers.attempt import Attempt
from workers.binding import StepInputInvalid
from workers.effects import Closing, EffectName, close_row
from workers.failures import UnknownAction
from workers.identity import worker_id
from workers.outcomes import LeaseLost, Snooze
from workers.performing import Ending, Finished, Unfinished, carry_out, others
from workers.reports import Done, GivenUp, Later, Nothing, Report, word
from workers.services import Services


def run_step(message: StepMessage, services: Services) -> Report:
    """Try the step, if it is due. StoreMoved and StoreAmnesia are raised: nothing may go on against such a server."""
    with logs.identity(
        run_id=message.run_id,
        job_id=step_task_id(message.run_id, message.step_id),
        step_id=message.step_id,
        worker_id=worker_id(),
        lock_key=services.store.keys.lock(message.ref, message.step_id),
    ):
        try:
            return _deliver(message, services)
        except StoreUnavailable as away:
            return Nothing(away.kind)


def _deliver(message: StepMessage, services: Services) -> Report:
    claim_id, granted_at = uuid4().hex, time.monotonic()
    claim = _claim(message, services, claim_id)
    if isinstance(claim, Granted):
        return _attempt(Attempt(message, claim, claim_id, granted_at, services))
    return _not_granted(message, services, claim)


# ---- the claim


def _claim(message: StepMessage, services: Services, claim_id: str) -> Claim:
    """Ask for an attempt; what a dead claim left behind is closed first, and asked for once more."""
    claim = _ask(message, services, claim_id)
    if isinstance(claim, CloseFirst) and _close_dead(message, services, claim):
        return _ask(message, services, claim_id)
    return claim


def _ask(message: StepMessage, services: Services, claim_id: str) -> Claim:
    return services.store.guard.claim_step(
        message.ref, message.step_id, generation=message.generation, claim_id=claim_id, worker=worker_id()
    )


def _close_dead(message: StepMessage, services: Services, dead: CloseFirst) -> bool:
    """End the claim of a child that is proven dead by what its effect row says. False: the ledger is away, or the
    action is asked first what it has done, in a task of its own: a probe that kills its process must not come back.
    """
    name = EffectName(message.run_id, message.step_id, dead.fence, dead.token, EffectClass(dead.effect))
    try:
        closing = close_row(services.ledger, name)
        if closing.fact is Fact.MAYBE and (probe := _probe(message, services)):
            services.publisher.publish((probe,))
            return False
    except LedgerUnavailable:
        return False
    guard = services.store.guard
    verdict = guard.expire_lease(message.ref, message.step_id, dead.fence, closing.fact, closing.result_text)
    tell_ended("redelivery", dead.fence, dead.effect, verdict, noticed=False)
    givenup.after_last_end(message, services, verdict)
    services.publisher.publish(others(getattr(verdict, "publish", ()), message))
    return True


def _probe(message: StepMessage, services: Services) -> Dispatch | None:
    """The message that has the step's action asked, if that can be."""
    step = services.store.views.step(message.ref, message.step_id)
    if step is None or not step.probe:
        return None
    logs.emit(aftermath.ProbeSent(step.fence))
    return close_message(message.ref, message.generation, step)


def _not_granted(message: StepMessage, services: Services, claim: Claim) -> Report:
    match claim:
        case Completed(fence):
            logs.emit(events.IdempotencyHit("commit", fence))
            return Done(Receipt(step_id=message.step_id, status=ReceiptStatus.CACHED, fence=fence))
        case InputsTooLarge():
            services.publisher.publish(claim.publish)
            return GivenUp("the results it refers to are too large")
    if isinstance(claim, Stop) and _has_failed(message, services):
        return GivenUp(f"it has failed before; its run is {claim.status}")
    status = claim.status if isinstance(claim, Stop | NotDue) else None
    logs.emit(events.ClaimRefused(word(claim), status))
    return Nothing(word(claim))


def _has_failed(message: StepMessage, services: Services) -> bool:
    """Whether the message came back to a step that was given up on meanwhile: Celery is to know what became of it."""
    step = services.store.views.step(message.ref, message.step_id)
    return step is not None and step.status in {StepStatus.FAILED, StepStatus.IN_DOUBT}


# ---- the attempt


def _attempt(attempt: Attempt) -> Report:
    ending, verdict = carry_out(attempt, _perform, _conclude)
    return _report(attempt, ending, verdict)


def _perform(attempt: Attempt) -> str:
    params = _bind(attempt)
    attempt.effect.begin()
    value = attempt.find_action()(params, attempt.context())
    if isinstance(value, Snooze):
        raise value
    text = attempt.text_of(value)
    attempt.lease.telling()
    return attempt.effect.finish(text)


def _bind(attempt: Attempt) -> BaseModel:
    """The params. Where there are none, because the inputs are others in a run that was started over or this worker
    lacks the action, what has landed before answers all the same: it needs neither.
    """
    try:
        return attempt.params()
    except (StepInputInvalid, UnknownAction):
        attempt.effect.recall()
        raise


# ---- how it ends


def _conclude(attempt: Attempt, ending: Ending) -> Verdict | None:
    """Tell the store how the attempt ended. None: not ours to say, or impossible now; the lease will lapse."""
    if isinstance(ending, Finished):
        return _commit(attempt, ending.text)
    if isinstance(ending.error, LeaseLost):
        return None
    try:
        return _end(attempt, ending.error)
    except LedgerUnavailable:
        return None


def _commit(attempt: Attempt, text: str) -> Verdict:
    message, fence = attempt.message, attempt.granted.fence
    guard = attempt.services.store.guard
    return attempt.lease.patiently(
        lambda: guard.complete_step(message.ref, message.step_id, fence, attempt.claim_id, text)
    )


def _end(attempt: Attempt, error: BaseException) -> Verdict:
    """Close the effect row, then give the attempt back or report that it failed."""
    closing = _known(attempt, attempt.effect.close(void=failures.had_no_effect(error)))
    guard, message, fence = attempt.services.store.guard, attempt.message, attempt.granted.fence
    said = failures.error_text(error, attempt.granted.index)
    back = failures.hand_back(error, attempt.services.settings)
    if back is None:
        again = failures.is_retryable(error)
        return attempt.lease.patiently(
            lambda: guard.fail_step(
                message.ref,
                message.step_id,
                fence,
                attempt.claim_id,
                closing.fact,
                said,
                retryable=again,
                result_text=closing.result_text,
                delay_ms=failures.delay_ms(error),
            )
        )
    return attempt.lease.patiently(
        lambda: guard.hand_back(
            message.ref,
            message.step_id,
            fence,
            attempt.claim_id,
            closing.fact,
            back.reason,
            int(back.delay_s * 1000),
            back.times,
            int(back.age_s * 1000),
            said,
            result_text=closing.result_text,
        )
    )


def _known(attempt: Attempt, closing: Closing) -> Closing:
    """Before an effect is called doubtful, its action's probe is asked. It has the stop grace to answer."""
    if closing.fact is not Fact.MAYBE:
        return closing
    return probing.ask(attempt, dead=False, limit_s=attempt.granted.stop_grace_ms / 1000)


# ---- what is said about it


def _report(attempt: Attempt, ending: Ending, verdict: Verdict | None) -> Report:
    error = ending.error if isinstance(ending, Unfinished) else None
    _tell(attempt, verdict, error)
    givenup.after_hand_back(attempt, verdict, error)
    attempt.services.publisher.publish(getattr(verdict, "publish", ()))
    return _for_celery(attempt, verdict, failures.message_of(error) if error else "")


def _for_celery(attempt: Attempt, verdict: Verdict | None, error: str) -> Report:
    match verdict:
        case Committed():
            step_id, fence = attempt.message.step_id, attempt.granted.fence
            return Done(Receipt(step_id=step_id, status=ReceiptStatus.EXECUTED, fence=fence))
        case RetryAt() | Again():
            return Later(error)
        case Failed() | InDoubt() | TooOften():
            return GivenUp(error)
    return Nothing(word(verdict))


def _tell(attempt: Attempt, verdict: Verdict | None, error: BaseException | None) -> None:
    """The fact that the log, and whoever counts, hears of."""
    granted = attempt.granted
    match verdict:
        case Committed():
            logs.bind(state_version=verdict.version)
            signs.compare_version(granted, verdict.version)
            freed = sum(member.kind == "step" for member in verdict.publish)
            logs.emit(events.StepCommitted(granted.fence, freed, verdict.last))
        case Fenced():
            logs.emit(events.CommitFenced(granted.fence, verdict.current))
        case _ if error is not None:
            _tell_failure(attempt, verdict, error)


def _tell_failure(attempt: Attempt, verdict: Verdict | None, error: BaseException) -> None:
    kind, number, where = failures.kind_of(error), attempt.granted.attempt, events.where(error)
    back = failures.hand_back(error, attempt.services.settings)
    match verdict:
        case RetryAt() if back is not None:
            logs.emit(events.StepHandedBack(back.reason, verdict.at_ms))
        case RetryAt():
            logs.emit(events.StepRetry(kind, number, verdict.at_ms, where))
        case InDoubt():
            unsafe = attempt.granted.effect == EffectClass.ONCE
            logs.emit(events.StepInDoubt(kind, number, where, failures.is_retryable(error) and not unsafe))
        case Failed() | TooOften():
            logs.emit(events.StepFailed(kind, number, where, failures.is_retryable(error)))
