"""The planner `llm`: the model of the settings, held to the catalogue, told of its faults."""

from orchestrator.settings import settings
from workers.plan_context import PlanContext
from workers.planners.base import Answer
from workers.planners.llm.configured import configured_model
from workers.planners.llm.prompts import answer_schema, plan_prompt
from workers.planners.llm.protocol import Call, Model
from workers.registry import planner


@planner("llm", repairs=True)
def llm(ctx: PlanContext) -> Answer:
    """Ask the model of MANDOR_LLM_* for a plan."""
    given = settings()
    return plan_with(configured_model(given), ctx, timeout_s=given.llm_timeout_s, max_tokens=given.llm_max_tokens)


def plan_with(model: Model, ctx: PlanContext, *, timeout_s: float, max_tokens: int) -> Answer:
    """One answer of a model, unjudged, within the time that the planner has left."""
    schema = answer_schema(ctx)
    prompt = plan_prompt(ctx, schema)
    call = Call(min(timeout_s, max(0.1, ctx.seconds_left())), ctx.call_key, max_tokens)
    reply = model.fill(prompt, schema, call)
    return Answer(reply.text, reply.finish_reason, reply.model, prompt.as_json(), reply.tokens())
