"""Declaring work: an action, a plan that names it, a planner that writes the plan."""

import json
from typing import Annotated

import pytest
from pydantic import BaseModel

from orchestrator.admission import PayloadDrift, validate_handoff
from schemas.canonical import hash_of
from schemas.policy import Policy
from workers import ExecutionPlan, PlanContext, Referable, step
from workers.binding import bind
from workers.context import Context
from workers.planners import call_planner
from workers.registry import Registry


class Greeting(BaseModel):
    name: Annotated[str, Referable]
    times: int = 1


class Guests(BaseModel):
    names: list[str]


def greet(params: Greeting, ctx: Context) -> str:
    """Greet somebody."""
    return " ".join([f"Hello {params.name}!"] * params.times)


@pytest.fixture
def ctx() -> PlanContext:
    value = {"names": ["Ada", "Grace"]}
    return PlanContext("run", None, None, json.dumps(value), hash_of(value), Policy())


def test_an_action_is_a_function_with_a_model(registry: Registry) -> None:
    declared = registry.action("greet", effect="pure")(greet)
    assert declared.name == "greet"
    assert declared(Greeting(name="Ada", times=2), None) == "Hello Ada! Hello Ada!"  # type: ignore[arg-type]


def test_a_plan_names_actions_and_the_door_checks_what_it_says(registry: Registry, ctx: PlanContext) -> None:
    registry.action("greet", effect="pure")(greet)
    good = {"plan_id": "3f2b6c1e-9a4d-4c57-8e21-0b7d5a6f9c10", "context_hash": ctx.context_hash}
    plan = json.dumps(good | {"steps": [{"action": "greet", "params": {"name": "Ada"}}]})
    admission = validate_handoff(plan, catalogue=registry.catalogue(), policy=Policy(), context_hash=ctx.context_hash)
    assert admission.steps[0].params == {"name": "Ada", "times": 1}

    slip = json.dumps(good | {"steps": [{"action": "greet", "params": {"name": "Ada", "times": "2"}}]})
    with pytest.raises(PayloadDrift) as caught:
        validate_handoff(slip, catalogue=registry.catalogue(), policy=Policy(), context_hash=ctx.context_hash)
    assert caught.value.path == "steps.0.params.times"


def test_a_planner_writes_plans_from_the_context(registry: Registry, ctx: PlanContext) -> None:
    def invite(guests: Guests, ctx: PlanContext) -> ExecutionPlan:
        return ctx.plan(*(step("greet", needs=[], name=name) for name in guests.names))

    registry.action("greet", effect="pure")(greet)
    registry.planner("invite")(invite)
    answer = call_planner(registry.find_planner("invite"), ctx)
    admission = validate_handoff(
        answer.raw, catalogue=registry.catalogue(), policy=Policy(), context_hash=ctx.context_hash
    )
    assert [one.params["name"] for one in admission.steps] == ["Ada", "Grace"]
    assert all(one.needs == () for one in admission.steps)


def test_a_step_may_build_on_the_result_of_another(registry: Registry, ctx: PlanContext) -> None:
    registry.action("greet", effect="pure")(greet)
    plan = ctx.plan(
        step("greet", id="first", name="Ada"),
        step("greet", name={"$result": "first", "path": ""}),
    )
    answer = plan.model_dump_json(exclude_none=True)
    second = validate_handoff(
        answer, catalogue=registry.catalogue(), policy=Policy(), context_hash=ctx.context_hash
    ).steps[1]
    assert second.refs == ("first",)
    params = bind(second.spec, second.params, {"first": '"Hello Ada!"'}, index=1)
    assert params == Greeting(name="Hello Ada!")
