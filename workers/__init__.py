"""What user code imports: everything an action or a planner needs, and nothing else."""

from orchestrator.admission.fields import Referable
from schemas.plan import ExecutionPlan
from workers.context import Context, NoEffect, PermanentError, Snooze
from workers.plan_context import PlanContext, step
from workers.registry import action, planner

__all__ = [
    "Context",
    "ExecutionPlan",
    "NoEffect",
    "PermanentError",
    "PlanContext",
    "Referable",
    "Snooze",
    "action",
    "planner",
    "step",
]
