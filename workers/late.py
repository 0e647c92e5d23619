"""Undoing once more: the effect of an attempt that came to light after its step had been undone.

A process that was frozen past its last guard, and woken when all was over, has had its effect by the time its landing
is refused. The row remembers that, a letter tells a person, and this task calls the compensation once more, in doubt
and with a row and a key of its own. The run, which may be closed, is left as it is.

One try, whatever the class: if it fails there is a letter, and a person to read it. A lost message is sent again by a
supervisor, which also misses a lost process; see orchestrator.late_effects.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator import late_effects
from orchestrator.errors import LedgerUnavailable, StoreUnavailable
from orchestrator.store.views import StepState
from orchestrator.telemetry import aftermath, events, logs
from schemas.dead_letter import DeadLetterKind
from schemas.ids import undo_task_id
from schemas.messages import LateMessage
from schemas.states import EffectClass, StepStatus
from workers import failures
from workers.closing import as_it_was
from workers.context import StepIdentity
from workers.effects import EffectName, close_row
from workers.identity import worker_id
from workers.outcomes import AlreadyApplied, LeaseLost
from workers.reports import GivenUp, Nothing, Report
from workers.services import Letter, Services
from workers.undo import UndoAttempt, perform

NOT_OURS: Final = (AlreadyApplied, LeaseLost, failures.EffectOpen)  # another delivery did it, or is about to


@dataclass(frozen=True)
class LateAttempt(UndoAttempt):
    """The one attempt to undo what came late. was: the step as it ended."""

    was: StepState = field(kw_only=True)

    @property
    def effect_name(self) -> EffectName:
        return replace(super().effect_name, kind="late", effect=EffectClass.ONCE)

    @property
    def identity(self) -> StepIdentity:
        key = late_effects.late_key(self.message.run_id, self.was, self.granted.fence)
        return replace(super().identity, idempotency_key=key)


def undo_late(message: LateMessage, services: Services) -> Report:
    """Undo it, if the step has been undone. If that is still to come, whoever does it will see that there is more."""
    job_id = undo_task_id(message.run_id, message.step_id)
    with logs.identity(run_id=message.run_id, job_id=job_id, step_id=message.step_id, worker_id=worker_id()):
        try:
            return _deliver(message, services)
        except (StoreUnavailable, LedgerUnavailable) as away:
            return Nothing(away.kind)


def _deliver(message: LateMessage, services: Services) -> Report:
    step = services.store.views.step(message.ref, message.step_id)
    if step is None or step.status != StepStatus.COMPENSATED:
        return Nothing("not_due")
    granted = replace(as_it_was(message, services, step), fence=message.fence)
    attempt = LateAttempt(message, granted, "", time.monotonic(), services, was=step)
    try:
        with attempt.leaving:
            perform(attempt)
    except failures.UnknownAction as missing:  # nothing has begun: sent again, it may come to a worker that has it
        return Nothing(missing.kind)
    except NOT_OURS as other:
        return Nothing(type(other).__name__)
    except (StoreUnavailable, LedgerUnavailable):
        raise
    except Exception as error:  # noqa: BLE001  (a compensation may raise anything)
        return _failed(attempt, error)
    logs.emit(aftermath.UndoCommitted(message.fence))
    return Nothing("undone")


def _failed(attempt: LateAttempt, error: Exception) -> Report:
    services, ref, fence = attempt.services, attempt.message.ref, attempt.granted.fence
    said = {"kind": failures.kind_of(error), "message": failures.message_of(error)}
    logs.emit(aftermath.UndoGivenUp(said["kind"], 1, events.where(error)))
    told = late_effects.given_up(services.store, ref, attempt.was, fence, said)
    services.write_letter(Letter(DeadLetterKind.UNDO, ref, attempt.was.id, told.reason, told.content, told.dedup_key))
    close_row(services.ledger, attempt.effect_name)
    return GivenUp(said["message"])
