"""Letters about steps: what a worker gives up on, or finds out too late, is written down for a person."""

from typing import Any

from orchestrator import compensation, dead_letters, late_effects
from orchestrator.errors import LedgerUnavailable, MandorError, StoreUnavailable
from orchestrator.store.replies import Dispatch, TooOften, UndoGivenUp
from orchestrator.telemetry import logs
from schemas.dead_letter import DeadLetterKind
from schemas.messages import StepMessage
from schemas.states import EffectClass, Fact, StepStatus
from workers import failures
from workers.attempt import Attempt
from workers.effects import EffectClosed
from workers.services import Letter, Services


def before_last_end(message: StepMessage, services: Services, known: Fact) -> None:
    """Every attempt ended with the loss of its worker; the last of those claims is to be ended after this. Raises
    LedgerUnavailable: then it must not be ended yet.
    """
    step = services.store.views.step(message.ref, message.step_id)
    owed = dead_letters.exhaustion(services.store, message.ref, step, known) if step else None
    if owed is not None:
        services.write_letter(_letter(message, owed.reason, owed.content))


def after_hand_back(attempt: Attempt, verdict: Any, error: BaseException | None) -> None:
    """No worker has the action, and that for long enough."""
    if isinstance(verdict, TooOften) and isinstance(error, failures.UnknownAction):
        _write(attempt.message, attempt.services, f"no worker supports {attempt.action}", {"action": attempt.action})


def after_undo(message: StepMessage, services: Services, verdict: Any) -> None:
    """The step could not be undone. Should the letter not come through now, the run's end waits for it."""
    if not isinstance(verdict, UndoGivenUp):
        return
    try:
        step = services.store.views.step(message.ref, message.step_id)
        if step is not None:
            said = compensation.given_up(services.store, message.ref, step)
            kind = DeadLetterKind.UNDO
            services.write_letter(Letter(kind, message.ref, step.id, said.reason, said.content, said.dedup_key))
    except (LedgerUnavailable, StoreUnavailable) as away:
        _tell_unwritten("undo", away)


def late_effect(attempt: Attempt, error: BaseException) -> None:
    """The effect happened after its claim had been ended and judged: a person is told, and if the step was undone by
    then, it is undone once more. An idempotent effect is harmless late, unless it was to be undone.
    """
    if not isinstance(error, EffectClosed) or not error.late:
        return
    granted = attempt.granted
    if granted.effect != EffectClass.IDEMPOTENT:
        content = {"action": attempt.action, "fence": granted.fence, "effect": granted.effect, "kind": attempt.kind}
        _write(attempt.message, attempt.services, late_effects.REASON, content, cause=f"late:{attempt.kind}")
    if attempt.kind == "do":
        _undo_late(attempt)


def more_to_undo(attempt: Attempt) -> None:
    """The step is undone; what of it came late, while that was under way, is undone once more."""
    message, ledger = attempt.message, attempt.services.ledger
    try:
        if ledger.effects.is_late(message.run_id, message.step_id):
            _undo_late(attempt)
    except LedgerUnavailable as away:
        _tell_unwritten("late_effect", away)


def _undo_late(attempt: Attempt) -> None:
    """By a worker in its right mind: this one may be a process that was frozen, and has not long to live."""
    message, services = attempt.message, attempt.services
    try:
        step = services.store.views.step(message.ref, message.step_id)
    except StoreUnavailable as away:
        _tell_unwritten("late_effect", away)
        return
    if step is not None and step.status == StepStatus.COMPENSATED:
        fence = attempt.granted.fence
        late = Dispatch("late", message.ref, message.generation, step.id, step.index, step.queue, step.limit_ms, fence)
        services.publisher.publish((late,))


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
