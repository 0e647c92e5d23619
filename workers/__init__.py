"""What user code imports: everything an action or a planner needs, and nothing else.

Each name is fetched when it is first asked for: the command line lives in this package too, and most of it needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOME: Final = {
    "Context": "workers.context",
    "ExecutionPlan": "schemas.plan",
    "NoEffect": "workers.context",
    "PermanentError": "workers.context",
    "PlanContext": "workers.plan_context",
    "Referable": "orchestrator.admission.fields",
    "Snooze": "workers.context",
    "action": "workers.registry",
    "planner": "workers.registry",
    "step": "workers.plan_context",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
