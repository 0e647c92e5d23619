"""A planner to replay refused plans with, and what their letters hold; loaded by `mandor` through MANDOR_ACTIONS."""

from workers import ExecutionPlan, PlanContext, planner

HOSTILE = "\x1b]0;owned\x07\u202egnp.exe"  # what a terminal would obey, and what turns the direction of reading


@planner("drift.careful")
def careful(ctx: PlanContext) -> ExecutionPlan:
    """Known by its name: no worker is there to ask it."""
    return ctx.plan()
