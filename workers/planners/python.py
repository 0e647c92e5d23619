"""Planners that are python functions."""

from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.admission.params import message_of, plain_path
from schemas.canonical import canonical_text
from schemas.issues import dotted
from schemas.plan import ExecutionPlan
from workers.plan_context import PlanContext, PlanMistake
from workers.planners.base import Answer, PlannerInputInvalid
from workers.registry import Planner


def call_planner(planner: Planner, ctx: PlanContext) -> Answer:
    """Run the function and write its plan down as text, so that it passes the door as text.

    PlannerInputInvalid: the context does not fit; PlanMistake: what came back is no plan. Everything the function
    itself raises passes through.
    """
    if planner.input_model is None:
        return Answer(_text_of(planner(ctx), planner))
    return Answer(_text_of(planner(_read_input(planner.input_model, ctx), ctx), planner))


def _read_input(model: type[BaseModel], ctx: PlanContext) -> BaseModel:
    try:
        return model.model_validate_json(ctx.context_text, strict=True, extra="forbid")
    except ValidationError as refusal:
        error = refusal.errors(include_url=False, include_context=False)[0]
        path = dotted(("context", *plain_path(error, ctx.context)))
        raise PlannerInputInvalid(message_of(error), path=path, hint=f"the planner reads {model.__name__}") from None


def _text_of(answer: Any, planner: Planner) -> str:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, ExecutionPlan):
        return canonical_text(answer.model_dump(mode="json", exclude_none=True), exact_integers=True)
    message = f"the planner {planner.name} returned a {type(answer).__name__}"
    raise PlanMistake(message, path="return", hint="return ctx.plan(…), or a plan as JSON text")
