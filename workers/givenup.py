"""Letters about steps: what a worker gives up on, or finds out too late, is written down for a person."""

from contextlib import suppress
from typing import Any

from orchestrator import compensation, dead_letters, late_effects
from orchestrator.errors import LedgerUnavailable, MandorError, StoreUnavailable
from orchestrator.store.replies import Failed, InDoubt, TooOften, UndoGivenUp
from orchestrator.telemetry import logs
from schemas.dead_letter import DeadLetterKind
from schemas.messages import PlanMessage, StepMessage
from schemas.states import EffectClass, StepStatus
from workers import failures
from workers.attempt import Attempt
from workers.effects import Lateness
from workers.services import Letter, Services


def after_last_end(message: StepMessage, services: Services, verdict: Any) -> None:
    """Every attempt ended with the loss of its worker, and the store has given the step up. Should the letter not come
    through now, the run's end waits for it."""
    if not isinstance(verdict, Failed | InDoubt):
        return
    try:
        step = services.store.views.step(message.ref, message.step_id)
    except StoreUnavailable as away:
        _tell_unwritten("retry_exhausted", away)
        return
    for owed in dead_letters.exhaustions(services.store.views, message.ref, step) if step else ():
        if owed.generation == message.generation:
            _write(message, services, owed.reason, owed.content, owed.cause)


def after_last_plan(message: PlanMessage, services: Services) -> None:
    """The same of the planner, in whose attempts a worker was lost each time."""
    try:
        owed = dead_letters.planners_exhaustion(services.store.views, message.ref)
        if owed is not None:
            dedup_key = dead_letters.plan_key(message.run_id, owed.generation)
            services.write_letter(Letter(DeadLetterKind.PLAN, message.ref, None, owed.reason, owed.content, dedup_key))
    except (LedgerUnavailable, StoreUnavailable) as away:
        _tell_unwritten("retry_exhausted", away)


def after_hand_back(attempt: Attempt, verdict: Any, error: BaseException | None) -> None:
    """No worker has the action, and that for long enough. Should the letter not come through now, the run's end waits
    for it."""
    if isinstance(error, failures.UnknownAction) and _is_last(attempt, verdict):
        owed = dead_letters.unsupported(attempt.action, attempt.message.generation)
        _write(attempt.message, attempt.services, owed.reason, owed.content)


def _is_last(attempt: Attempt, verdict: Any) -> bool:
    """Whether the step was given back once too often. What an earlier attempt may have done leaves it in doubt."""
    if isinstance(verdict, TooOften):
        return True
    if not isinstance(verdict, InDoubt):
        return False
    store, ref = attempt.services.store, attempt.message.ref
    try:
        step = store.views.step(ref, attempt.message.step_id)
        return step is not None and dead_letters.is_given_up(store.views, ref, step)
    except StoreUnavailable as away:
        _tell_unwritten("in_doubt", away)
        return False


def after_undo(message: StepMessage, services: Services, verdict: Any, fence: int) -> None:
    """The step could not be undone. Should the letter not come through now, the run's end waits for it."""
    if not isinstance(verdict, UndoGivenUp):
        return
    try:
        step = services.store.views.step(message.ref, message.step_id)
        if step is not None and compensation.was_given_up(step, fence):
            said = compensation.given_up(services.store.views, message.ref, step)
            kind = DeadLetterKind.UNDO
            services.write_letter(Letter(kind, message.ref, step.id, said.reason, said.content, said.dedup_key))
    except (LedgerUnavailable, StoreUnavailable) as away:
        _tell_unwritten("undo", away)


def late_effect(attempt: Attempt, error: BaseException | None) -> None:
    """The attempt is over, and the store did not take it. Where its effect has happened, or may have, after its claim
    had been ended and judged, that is owed in the ledger from here on: if the step was undone, it is undone once more.
    A person is told at once of what is sure; of the rest by a supervisor, if nothing else looks after it.
    """
    with suppress(LedgerUnavailable):  # the lease has logged it, if nobody else can know
        attempt.effect.leave(void=error is not None and failures.had_no_effect(error))
    late, granted, kind = attempt.effect.late, attempt.granted, attempt.kind
    if late is Lateness.SURE and granted.effect != EffectClass.IDEMPOTENT:
        content = {"action": attempt.action, "fence": granted.fence, "effect": granted.effect, "kind": kind}
        cause = f"late:{kind}:{granted.fence}"
        _write(attempt.message, attempt.services, late_effects.REASON, content, cause=cause)
    if kind == "do" and late is not Lateness.NOT:
        more_to_undo(attempt)


def more_to_undo(attempt: Attempt) -> None:
    """If the step is undone, and something of it came late that nobody undoes yet, have that undone.

    By a worker in its right mind: this one may be a process that was frozen, and has not long to live.
    """
    message, services = attempt.message, attempt.services
    try:
        late = services.ledger.late.of(message.run_id, message.step_id)
        step = services.store.views.step(message.ref, message.step_id) if late else None
    except (LedgerUnavailable, StoreUnavailable) as away:
        _tell_unwritten(late_effects.REASON, away)
        return
    if late is None or late.begun or step is None or step.status != StepStatus.COMPENSATED:
        return
    services.publisher.publish((late_effects.message(message.ref, message.generation, step, late),))


def _write(
    message: StepMessage, services: Services, reason: str, content: dict[str, Any], cause: str = "given_up"
) -> None:
    try:
        services.write_letter(_letter(message, reason, content, cause))
    except LedgerUnavailable as away:
        _tell_unwritten(reason, away)


def _letter(message: StepMessage, reason: str, content: dict[str, Any], cause: str = "given_up") -> Letter:
    dedup_key = dead_letters.step_key(message.run_id, message.step_id, message.generation, cause)
    return Letter(DeadLetterKind.STEP, message.ref, message.step_id, reason, content, dedup_key)


def _tell_unwritten(reason: str, away: MandorError) -> None:
    logs.logger("mandor").error("letter.not_written", reason=reason, kind=away.kind)
