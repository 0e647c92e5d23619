"""One delivery of the message that undoes a step, from the claim to what Celery is told. The counterpart of execution.

    claim -> (close what a dead claim left) -> find the compensation -> begin -> act -> finish -> commit or conclude

Undoing is an effect like any other: it has its own lease, attempts, effect row, idempotency key and time limit, and
the class of the action. What cannot be undone becomes a dead letter, and the other steps of the run are undone anyway.
"""

import json
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypedDict
from uuid import uuid4

from orchestrator.admission.catalogue import ActionSpec
from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.store.guard import UndoClaim, UndoVerdict
from orchestrator.store.replies import (
    CloseFirst,
    Committed,
    Completed,
    Fenced,
    NotDue,
    RetryAt,
    Stop,
    UndoGivenUp,
    UndoGranted,
)
from orchestrator.supervisors.reclaim_stale_leases import tell_undo_ended
from orchestrator.telemetry import aftermath, events, logs
from schemas.ids import undo_key, undo_task_id
from schemas.messages import Receipt, ReceiptStatus, UndoMessage
from schemas.policy import Policy
from schemas.states import EffectClass
from workers import failures, givenup
from workers.attempt import Attempt
from workers.context import StepIdentity
from workers.effects import EffectName, close_row
from workers.identity import worker_id
from workers.outcomes import LeaseLost, NoEffect, PermanentError, Snooze
from workers.performing import Ending, Finished, Unfinished, carry_out, others
from workers.registry import Action
from workers.reports import Done, GivenUp, Later, Nothing, Report, word
from workers.services import Services
from workers.workspace import Workspace

NOTHING: Final = "null"  # an undo has no result


class PutOff(TypedDict, total=False):
    """What the store is told of an attempt that is given back."""

    reason: str
    delay_ms: int
    max_times: int
    min_age_ms: int
    most_age_ms: int


class NoCompensation(PermanentError, NoEffect):
    """The action's effect stands, and nobody has declared what undoes it."""

    kind = "no_compensation"


@dataclass(frozen=True)
class UndoAttempt(Attempt):
    """One granted attempt to undo a step. done_text: JSON of the step's result, None where it is in doubt; done_fence:
    of the step's own last attempt.
    """

    kind: ClassVar[Literal["do", "undo"]] = "undo"
    done_text: str | None = None
    done_fence: int = 0

    @property
    def identity(self) -> StepIdentity:
        key = undo_key(self.message.run_id, self.message.step_id, self.granted.attempt_group)
        return replace(super().identity, idempotency_key=key, in_doubt=self.done_text is None)

    def done(self) -> Any:
        """The step's result as its action declares it; None where nobody knows whether it happened."""
        return _result(self.find_action().spec, self.done_text)

    def text_of(self, value: Any) -> str:  # noqa: ARG002
        """Whatever a compensation returns, there is nobody to read it."""
        return NOTHING

    def _workspace(self) -> Workspace:
        workspaces, fence = self.services.workspaces, self.granted.fence
        return workspaces.open(self.message.run_id, fence, self.done_fence, self.policy)


def run_undo(message: UndoMessage, services: Services) -> Report:
    """Undo the step, if it is its turn. StoreMoved and StoreAmnesia are raised, as by run_step."""
    with logs.identity(
        run_id=message.run_id,
        job_id=undo_task_id(message.run_id, message.step_id),
        step_id=message.step_id,
        worker_id=worker_id(),
        lock_key=services.store.keys.lock(message.ref, message.step_id),
    ):
        try:
            return _deliver(message, services)
        except StoreUnavailable as away:
            return Nothing(away.kind)


def _deliver(message: UndoMessage, services: Services) -> Report:
    claim_id, granted_at = uuid4().hex, time.monotonic()
    claim = _claim(message, services, claim_id)
    if not isinstance(claim, UndoGranted):
        return _not_granted(claim, message)
    attempt = UndoAttempt(
        message, claim.step, claim_id, granted_at, services, done_text=claim.done_text, done_fence=claim.done_fence
    )
    return _report(attempt, *carry_out(attempt, perform, _conclude))


# ---- the claim


def _claim(message: UndoMessage, services: Services, claim_id: str) -> UndoClaim:
    claim = _ask(message, services, claim_id)
    if isinstance(claim, CloseFirst) and _close_dead(message, services, claim):
        return _ask(message, services, claim_id)
    return claim


def _ask(message: UndoMessage, services: Services, claim_id: str) -> UndoClaim:
    return services.store.guard.claim_undo(
        message.ref, message.step_id, generation=message.generation, claim_id=claim_id, worker=worker_id()
    )


def _close_dead(message: UndoMessage, services: Services, dead: CloseFirst) -> bool:
    """End the claim of a child that is proven dead by what its effect row says. False: the ledger is away."""
    name = EffectName(message.run_id, message.step_id, dead.fence, dead.token, EffectClass(dead.effect), "undo")
    try:
        closing = close_row(services.ledger, name)
    except LedgerUnavailable:
        return False
    verdict = services.store.guard.expire_undo(message.ref, message.step_id, dead.fence, closing.fact)
    tell_undo_ended("redelivery", dead.fence, verdict, noticed=False)
    givenup.after_undo(message, services, verdict, dead.fence)
    services.publisher.publish(others(getattr(verdict, "publish", ()), message))
    return True


def _not_granted(claim: UndoClaim, message: UndoMessage) -> Report:
    if isinstance(claim, Completed):
        logs.emit(events.IdempotencyHit("commit", claim.fence))
        return Done(Receipt(step_id=message.step_id, status=ReceiptStatus.CACHED, fence=claim.fence))
    status = claim.status if isinstance(claim, Stop | NotDue) else None
    logs.emit(events.ClaimRefused(word(claim), status))
    return Nothing(word(claim))


# ---- the attempt


def perform(attempt: UndoAttempt) -> str:
    """Have the step undone: by its action's compensation, or by the end of the run's workspace, where nothing of the
    step is anywhere else. That end is owed by the run's own, so nothing is done about it here.
    """
    action = attempt.find_action()
    try:
        _compensate(attempt, action)
    except PermanentError as refused:
        if not is_confined(action.spec, attempt.policy, attempt.done_text):
            raise
        logs.emit(aftermath.UndoLeft(failures.kind_of(refused), attempt.granted.fence, events.where(refused)))
        attempt.lease.telling()
        return attempt.effect.pass_over(NOTHING)
    attempt.lease.telling()
    return attempt.effect.finish(NOTHING)


def _compensate(attempt: UndoAttempt, action: Action[Any, Any]) -> None:
    """Call it between the guards of its effect row."""
    if action.undo is None:
        raise NoCompensation(f"no compensation declared for {attempt.action}")
    params, done = attempt.params(), attempt.done()
    attempt.effect.begin()
    value = action.undo(params, done, attempt.context())
    if isinstance(value, Snooze):
        raise value


def is_confined(spec: ActionSpec, policy: Policy, done_text: str | None) -> bool:
    """Whether the end of the run's workspace undoes a step with this result (JSON; None: it is in doubt)."""
    return spec.is_confined(policy, _legible(spec, done_text) if callable(spec.confined) else None)


def _legible(spec: ActionSpec, done_text: str | None) -> Any:
    """The result; None where it cannot be read: a person gave it, or another release."""
    try:
        return _result(spec, done_text)
    except ValueError:
        return None


def _result(spec: ActionSpec, done_text: str | None) -> Any:
    if done_text is None:
        return None
    return json.loads(done_text) if spec.result_model is None else spec.result_model.model_validate_json(done_text)


def _conclude(attempt: UndoAttempt, ending: Ending) -> UndoVerdict | None:
    """Tell the store how the attempt ended. None: not ours to say, or impossible now; the lease will lapse."""
    if isinstance(ending, Finished):
        return _commit(attempt)
    if isinstance(ending.error, LeaseLost):
        return None
    try:
        return _end(attempt, ending.error)
    except LedgerUnavailable:
        return None


def _commit(attempt: UndoAttempt) -> UndoVerdict:
    message, fence, guard = attempt.message, attempt.granted.fence, attempt.services.store.guard
    return attempt.lease.patiently(lambda: guard.complete_undo(message.ref, message.step_id, fence, attempt.claim_id))


def _end(attempt: UndoAttempt, error: BaseException) -> UndoVerdict:
    """Close the effect row, then report that the attempt failed, or give it back uncounted."""
    closing = attempt.effect.close(void=failures.had_no_effect(error))
    guard, message, fence = attempt.services.store.guard, attempt.message, attempt.granted.fence
    again = failures.is_retryable(error)
    put_off = _put_off(attempt, error)
    return attempt.lease.patiently(
        lambda: guard.fail_undo(
            message.ref,
            message.step_id,
            fence,
            attempt.claim_id,
            closing.fact,
            failures.error_text(error, attempt.granted.index),
            retryable=again,
            **put_off,
        )
    )


def _put_off(attempt: UndoAttempt, error: BaseException) -> PutOff:
    """How the attempt is given back uncounted; empty: it failed. No deadline ends an undo, so that one which snoozes
    has a limit of its own: as long as the run itself had.
    """
    settings = attempt.services.settings
    back = failures.hand_back(error, settings)
    if back is None:
        return {}
    most_s = max(attempt.policy.deadline_s, settings.dispatch_deadline_s) if isinstance(error, Snooze) else 0
    return {
        "reason": back.reason,
        "delay_ms": int(back.delay_s * 1000),
        "max_times": back.times,
        "min_age_ms": int(back.age_s * 1000),
        "most_age_ms": int(most_s * 1000),
    }


# ---- what is said about it


def _report(attempt: UndoAttempt, ending: Ending, verdict: UndoVerdict | None) -> Report:
    error = ending.error if isinstance(ending, Unfinished) else None
    _tell(attempt, verdict, error)
    givenup.after_undo(attempt.message, attempt.services, verdict, attempt.granted.fence)
    if isinstance(verdict, Committed):
        givenup.more_to_undo(attempt)
    attempt.services.publisher.publish(getattr(verdict, "publish", ()))
    said = failures.message_of(error) if error else ""
    match verdict:
        case Committed():
            fence = attempt.granted.fence
            return Done(Receipt(step_id=attempt.message.step_id, status=ReceiptStatus.EXECUTED, fence=fence))
        case RetryAt():
            return Later(said)
        case UndoGivenUp():
            return GivenUp(said)
    return Nothing(word(verdict))


def _tell(attempt: UndoAttempt, verdict: UndoVerdict | None, error: BaseException | None) -> None:
    granted = attempt.granted
    match verdict:
        case Committed():
            logs.bind(state_version=verdict.version)
            logs.emit(aftermath.UndoCommitted(granted.fence))
        case Fenced():
            logs.emit(events.CommitFenced(granted.fence, verdict.current))
        case RetryAt() if error is not None:
            kind, where = failures.kind_of(error), events.where(error)
            logs.emit(aftermath.UndoRetry(kind, granted.attempt, verdict.at_ms, where))
        case UndoGivenUp() if error is not None:
            logs.emit(aftermath.UndoGivenUp(failures.kind_of(error), granted.attempt, events.where(error)))
