"""The words for what a run, a step and an effect are in."""

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run stands."""

    ACCEPTED = "accepted"
    PLANNING = "planning"
    RUNNING = "running"
    FAILING = "failing"
    COMPENSATING = "compensating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


class StepStatus(StrEnum):
    """Where a step stands. `ready` waits for room, `dispatched` for a worker, `backoff` for its time."""

    PENDING = "pending"
    WAITING_APPROVAL = "waiting_approval"
    READY = "ready"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    BACKOFF = "backoff"
    COMPLETED = "completed"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    SKIPPED = "skipped"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


class EffectClass(StrEnum):
    """What a redelivery may do again."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    KEYED = "keyed"
    ONCE = "once"


class Fact(StrEnum):
    """What is known of an attempt's effect after it ended without a commit."""

    NONE = "none"
    MAYBE = "maybe"
    LANDED = "landed"


RUN_TERMINAL: Final = frozenset(
    {
        RunStatus.SUCCEEDED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.DEAD_LETTERED,
        RunStatus.COMPENSATED,
        RunStatus.COMPENSATION_FAILED,
    }
)
# may be started over
RUN_RETRIABLE: Final = frozenset({RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.DEAD_LETTERED})

STEP_TERMINAL: Final = frozenset(
    {
        StepStatus.COMPLETED,
        StepStatus.FAILED,
        StepStatus.IN_DOUBT,
        StepStatus.SKIPPED,
        StepStatus.COMPENSATED,
        StepStatus.COMPENSATION_FAILED,
    }
)
