"""Letters about steps: what a worker gives up on, or finds out too late, is written down for a person."""

from typing import Any

from orchestrator import dead_letters
from orchestrator.errors import LedgerUnavailable
from orchestrator.store.replies import TooOften
from orchestrator.telemetry import logs
from schemas.dead_letter import DeadLetterKind
from schemas.messages import StepMessage
from schemas.states import Fact
from workers import failures
from workers.attempt import Attempt
from workers.effects import EffectClosed
from workers.services import Letter, Services


def exhausted(message: StepMessage, services: Services, attempts: int) -> None:
    """Every attempt ended with the loss of its worker."""
    _write(message, services, "retry_exhausted", {"attempts": attempts})


def before_last_end(message: StepMessage, services: Services, known: Fact) -> None:
    """The same, before the last of those claims is ended. Raises LedgerUnavailable: then it must not be ended yet."""
    step = services.store.views.step(message.ref, message.step_id)
    owed = dead_letters.exhaustion(services.store, message.ref, step, known) if step else None
    if owed is not None:
        services.write_letter(_letter(message, owed.reason, owed.content))


def after_hand_back(attempt: Attempt, verdict: Any, error: BaseException | None) -> None:
    """No worker has the action, and that for long enough."""
    if isinstance(verdict, TooOften) and isinstance(error, failures.UnknownAction):
        _write(attempt.message, attempt.services, f"no worker supports {attempt.action}", {"action": attempt.action})


def late_effect(attempt: Attempt, error: BaseException) -> None:
    """The effect happened after its claim had been ended and judged: only a person can tell whether that matters."""
    if isinstance(error, EffectClosed) and error.late:
        content = {"action": attempt.action, "fence": attempt.granted.fence, "effect": attempt.granted.effect}
        _write(attempt.message, attempt.services, "late_effect", content, cause=f"late:{attempt.granted.fence}")


def _write(
    message: StepMessage, services: Services, reason: str, content: dict[str, Any], cause: str = "given_up"
) -> None:
    try:
        services.write_letter(_letter(message, reason, content, cause))
    except LedgerUnavailable as away:
        logs.logger("mandor").error("letter.not_written", reason=reason, kind=away.kind)


def _letter(message: StepMessage, reason: str, content: dict[str, Any], cause: str = "given_up") -> Letter:
    dedup_key = dead_letters.step_key(message.run_id, message.step_id, message.generation, cause)
    return Letter(DeadLetterKind.STEP, message.ref, message.step_id, reason, content, dedup_key)
