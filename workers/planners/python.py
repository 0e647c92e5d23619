"""Planners that are python functions; one that asks a model returns its `Answer`."""

from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.admission.params import message_of, plain_path
from schemas.canonical import NotCanonical, canonical_text
from schemas.issues import dotted
from schemas.plan import ExecutionPlan, Step
from workers.plan_context import PlanContext, PlanMistake
from workers.planners.base import Answer, PlannerInputInvalid
from workers.registry import Planner


def call_planner(planner: Planner, ctx: PlanContext) -> Answer:
    """Run the function and write its plan down as text, so that it passes the door as text.

    PlannerInputInvalid: the context does not fit; PlanMistake: what came back is no plan. Everything the function
    itself raises passes through.
    """
    if planner.input_model is None:
        return _answer_of(planner(ctx), planner)
    return _answer_of(planner(_read_input(planner.input_model, ctx), ctx), planner)


def _read_input(model: type[BaseModel], ctx: PlanContext) -> BaseModel:
    try:
        return model.model_validate_json(ctx.context_text, strict=True, extra="forbid")
    except ValidationError as refusal:
        error = refusal.errors(include_url=False, include_context=False)[0]
        path = dotted(("context", *plain_path(error, ctx.context)))
        raise PlannerInputInvalid(message_of(error), path=path, hint=f"the planner reads {model.__name__}") from None


def _answer_of(returned: Any, planner: Planner) -> Answer:
    if isinstance(returned, Answer):
        return returned
    if isinstance(returned, str):
        return Answer(returned)
    if isinstance(returned, ExecutionPlan):
        return Answer(_written(returned, planner))
    message = f"the planner {planner.name} returned a {type(returned).__name__}"
    raise PlanMistake(message, path="return", hint="return ctx.plan(…), or a plan as JSON text")


def _written(plan: ExecutionPlan, planner: Planner) -> str:
    steps = [_step_json(one) for one in plan.steps]
    whole = {"plan_id": plan.plan_id, "context_hash": plan.context_hash, "steps": steps}
    try:
        return canonical_text(whole, exact_integers=True)
    except NotCanonical as wrong:
        hint = f"the planner {planner.name} put in a value that JSON cannot carry; step(…) converts most"
        raise PlanMistake(wrong.message, path=wrong.path, hint=hint) from None


def _step_json(step: Step) -> dict[str, Any]:
    """What was given, and no null where something was left out."""
    given: dict[str, Any] = {"action": step.action, "params": step.params}
    if step.id is not None:
        given["id"] = step.id
    if step.needs is not None:
        given["needs"] = list(step.needs)
    return given
