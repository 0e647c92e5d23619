"""A planner that drifted, one that did not, and the action they plan; loaded by real workers through MANDOR_ACTIONS."""

import json

from pydantic import BaseModel

from workers import Context, ExecutionPlan, PlanContext, action, planner, step

HOSTILE = "\x1b]0;owned\x07\u202egnp.exe"  # what a terminal would obey, and what turns the direction of reading


class Greeting(BaseModel):
    greeting: str


@action("drift.greet", effect="pure")
def greet(params: Greeting, ctx: Context) -> str:
    return params.greeting


@planner("drift.drifts")
def drifts(ctx: PlanContext) -> str:
    """A number where a text belongs, and prose that is no friend of terminals."""
    steps = [{"action": "drift.greet", "params": {"greeting": 3}}]
    plan = {"plan_id": "3f43b6b0-0b6b-4b7e-9d76-6f0b7dbd6a11", "context_hash": ctx.context_hash, "steps": steps}
    return f"Sure! {HOSTILE}\n```json\n{json.dumps(plan)}\n```"


@planner("drift.careful")
def careful(ctx: PlanContext) -> ExecutionPlan:
    return ctx.plan(step("drift.greet", greeting="three"))
