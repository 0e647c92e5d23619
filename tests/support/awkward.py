"""What users' own modules may do to the fault kit: print, plan otherwise each time, answer nothing, raise."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from workers import Context, ExecutionPlan, PlanContext, action, planner, step

print("a module that says hello")  # noqa: T201


class Note(BaseModel):
    text: str = ""


@action("awkward.note", effect="idempotent")
def note(params: Note, ctx: Context) -> Note:
    return params


@planner("awkward.moody")
def moody(given: Note, ctx: PlanContext) -> ExecutionPlan:
    return ctx.plan(step("awkward.note", id=f"note-{uuid4().hex}"))


def closed(run_ids: Sequence[str]) -> Any:
    print("an audit that says hello")  # noqa: T201
    raise RuntimeError("the books are closed")


def silent(run_ids: Sequence[str]) -> Any:
    return None
