"""Planners of the system tests that do not do as they should, loaded by real workers through MANDOR_ACTIONS."""

import os
import time
from pathlib import Path

from workers import ExecutionPlan, PlanContext, planner, step


def called(ctx: PlanContext) -> int:
    """How often the run's planner was called, this time included."""
    log = Path(os.environ["EFFECT_LOG"]).with_name(f"planner-{ctx.run_id}")
    with log.open("ab", buffering=0) as file:
        file.write(f"{os.getpid()}\n".encode())
    return len(log.read_text().split())


@planner("test.hang")
def hang(ctx: PlanContext) -> ExecutionPlan:
    """Never answer."""
    called(ctx)
    while True:
        time.sleep(3600)


@planner("test.hang_once")
def hang_once(ctx: PlanContext) -> ExecutionPlan:
    """Do not answer the first time."""
    if called(ctx) == 1:
        time.sleep(3600)
    return ctx.plan(step("test.echo", value="planned"))
