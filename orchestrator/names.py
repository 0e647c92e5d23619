"""Names that more than one process must agree on: tasks, queues, supervisors."""

from typing import Final

SUBMIT: Final = "orchestrator.submit"
SETTLE: Final = "orchestrator.settle"
PLAN: Final = "workers.plan"
STEP: Final = "workers.step"
UNDO: Final = "workers.undo"
UNDO_LATE: Final = "workers.undo_late"
CLOSE: Final = "workers.close"
DELIVER: Final = "orchestrator.deliver"

# one beat entry, one task and one file in orchestrator/supervisors each
SUPERVISORS: Final = (
    "reclaim-stale-leases",
    "redispatch-lost-steps",
    "retry-due-steps",
    "enforce-deadlines",
    "settle-runs",
    "end-waits",
    "apply-decisions",
    "trigger-compensation",
    "drain-ledger",
    "audit-runs",
    "deliver-callbacks",
    "prune-ledger",
)

QUEUES: Final = ("plan", "steps", "control", "supervise", "deliver", "dlq")


def queue(prefix: str, name: str) -> str:
    """The broker's name of one of QUEUES, e.g. `mandor.steps`."""
    return f"{prefix}{name}"


def supervisor_task(name: str) -> str:
    """The Celery task that runs one supervisor's pass."""
    return f"orchestrator.supervise.{name.replace('-', '_')}"
