"""What doing a step and undoing one have in common: code of a user's, run under a lease, and whatever it ends with."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from orchestrator.store.replies import Fenced, Publish, UnknownRun
from orchestrator.telemetry import events, logs, signals
from schemas.messages import StepMessage
from workers import givenup, signs
from workers.attempt import Attempt
from workers.outcomes import AlreadyApplied
from workers.reports import word

NOT_TAKEN: Final = (Fenced, UnknownRun)
One = TypeVar("One", bound=Attempt)
Said = TypeVar("Said")


@dataclass(frozen=True, slots=True)
class Finished:
    """It is done, now or by an earlier attempt. text: the result."""

    text: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The attempt ended without a result."""

    error: BaseException


Ending = Finished | Unfinished


def carry_out(
    attempt: One, perform: Callable[[One], str], conclude: Callable[[One, Ending], Said]
) -> tuple[Ending, Said]:
    """Perform, and tell the store how it ended, while the claim is kept alive."""
    _bind_identity(attempt)
    started, granted, undo = time.monotonic(), attempt.granted, attempt.kind == "undo"
    logs.emit(events.JobStart(attempt.action, granted.effect, granted.attempt, granted.fence, undo))
    signs.compare_policy(granted)
    try:
        with attempt.leaving, attempt.lease:
            ending = _perform(attempt, perform)
            verdict = _see_out(attempt, ending, conclude)
    finally:
        duration_ms = int((time.monotonic() - started) * 1000)
        logs.emit(signals.LoopEnded("undo" if undo else "step", duration_ms))
    logs.emit(events.JobEnd(attempt.action, word(verdict), granted.attempt, duration_ms, undo))
    return ending, verdict


def _see_out(attempt: One, ending: Ending, conclude: Callable[[One, Ending], Said]) -> Said:
    """Tell the store; where it does not take what it is told, the ledger is to know what may have come late."""
    verdict = None
    try:
        verdict = conclude(attempt, ending)
        return verdict
    finally:
        if verdict is None or isinstance(verdict, NOT_TAKEN):
            givenup.late_effect(attempt, ending.error if isinstance(ending, Unfinished) else None)


def others(wave: Publish, message: StepMessage) -> Publish:
    """All but this very message, which is in hand."""
    return tuple(member for member in wave if member.step_id != message.step_id)


def _bind_identity(attempt: Attempt) -> None:
    granted = attempt.granted
    logs.bind(
        request_id=granted.request_id,
        session_id=granted.session_id,
        idempotency_key=attempt.identity.idempotency_key,
        policy_hash=granted.policy_hash,
        state_version=granted.version,
    )


def _perform(attempt: One, perform: Callable[[One], str]) -> Ending:
    try:
        return Finished(perform(attempt))
    except AlreadyApplied as before:
        return Finished(before.result_text)
    except BaseException as error:  # noqa: BLE001  (an action may raise anything; it is judged, not lost)
        return Unfinished(error)
    finally:
        attempt.lease.action_returned()
