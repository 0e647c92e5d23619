"""Planner functions: what they are given, what they write, and that it is only text to the door."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, RootModel

from schemas.canonical import hash_of
from schemas.plan import ExecutionPlan, Step
from schemas.policy import Policy
from tests.support.plans import HASH, PLAN_ID, admit
from workers import PlanContext, step
from workers.outcomes import PermanentError
from workers.plan_context import PlanMistake
from workers.planners import Answer, PlannerInputInvalid, call_planner, ready_plan
from workers.registry import Registry


class Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    sku: str
    count: int = 1


class Order(BaseModel):
    lines: list[Line]


NUMBERS: Any = [5]


class Names(RootModel[list[str]]):
    pass


def context(value: Any = None, text: str | None = None) -> PlanContext:
    written = json.dumps(value) if text is None else text
    return PlanContext("run", "session", "a goal", written, hash_of(value), Policy())


def write_files(order: Order, ctx: PlanContext) -> ExecutionPlan:
    return ctx.plan(*(step("create_file", path=f"{line.sku}.txt", content=str(line.count)) for line in order.lines))


def answer(function: Any, ctx: PlanContext) -> Answer:
    registry = Registry()
    registry.planner("p")(function)
    return call_planner(registry.find_planner("p"), ctx)


def test_a_plan_is_written_down_and_passes_the_door() -> None:
    ctx = context({"lines": [{"sku": "a"}, {"sku": "b", "count": 2}]})
    made = answer(write_files, ctx)
    admission = admit(made.raw, context_hash=ctx.context_hash)
    assert made.finish_reason is None
    assert not admission.extracted
    assert [one.params["path"] for one in admission.steps] == ["a.txt", "b.txt"]
    assert admission.plan_id != admit(answer(write_files, ctx).raw).plan_id


def test_text_is_passed_on_as_it_is() -> None:
    def free(ctx: PlanContext) -> str:
        return f"{ctx.goal} {ctx.run_id} {ctx.session_id} {ctx.context} {ctx.policy.max_steps}"

    assert answer(free, context([1])) == Answer("a goal run session [1] 1000")
    assert ready_plan("anything") == Answer("anything")


def test_a_context_may_be_a_list() -> None:
    def named(names: Names, ctx: PlanContext) -> str:
        return names.root[0]

    assert answer(named, context(["x"])) == Answer("x")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"lines": [{"sku": "a", "count": "2"}]}, "context.lines.0.count"),
        ({"lines": [{"sku": "a", "colour": 1}]}, "context.lines.0.colour"),
        ({}, "context.lines"),
        (None, "context"),
        ([], "context"),
    ],
)
def test_the_context_is_read_strictly(value: Any, path: str) -> None:
    with pytest.raises(PlannerInputInvalid) as caught:
        answer(write_files, context(value))
    assert caught.value.path == path
    assert caught.value.hint == "the planner reads Order"


def test_what_is_no_plan_is_a_mistake() -> None:
    def wrong(ctx: PlanContext) -> Any:
        return {"steps": []}

    with pytest.raises(PlanMistake, match="returned a dict"):
        answer(wrong, context())


def test_values_that_json_cannot_carry_are_a_mistake() -> None:
    def wrong(ctx: PlanContext) -> ExecutionPlan:
        return ExecutionPlan(plan_id=PLAN_ID, context_hash=HASH, steps=(Step(action="a", params={"x": object()}),))

    with pytest.raises(PlanMistake) as caught:
        answer(wrong, context())
    assert caught.value.path == "steps.0.params.x"


def test_none_inside_params_stays() -> None:
    def nulls(ctx: PlanContext) -> ExecutionPlan:
        return ctx.plan(step("a", x=None, y={"z": None}))

    written = json.loads(answer(nulls, context()).raw)
    assert written["steps"] == [{"action": "a", "params": {"x": None, "y": {"z": None}}}]


def test_what_a_planner_raises_passes_through() -> None:
    def fails(ctx: PlanContext) -> str:
        raise PermanentError("not today")

    with pytest.raises(PermanentError, match="not today"):
        answer(fails, context())


def test_steps_are_built_from_plain_python() -> None:
    when = datetime(2026, 1, 31, tzinfo=UTC)
    made = step("a.b", {"id": 5}, id="x", needs=iter(["y"]), when=when, line=Line(sku="s"), who=UUID(PLAN_ID))
    assert made == Step(
        action="a.b",
        params={"id": 5, "when": "2026-01-31T00:00:00Z", "line": {"sku": "s", "count": 1}, "who": PLAN_ID},
        id="x",
        needs=("y",),
    )
    assert step("a", Line(sku="s")).params == {"sku": "s", "count": 1}
    assert (step("a").id, step("a").needs, step("a", needs=[]).needs) == (None, None, ())


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (lambda: step("Not A Name"), "action"),
        (lambda: step("a", id="Not A Slug"), "id"),
        (lambda: step("a", needs="b"), "needs"),
        (lambda: step("a", needs=NUMBERS), "needs.0"),
        (lambda: step("a", x=object()), "params.x"),
        (lambda: context().plan(), "steps"),
        (lambda: context().plan(step("a"), {"action": "b"}), "steps.1"),
    ],
)
def test_steps_that_cannot_be(build: Any, path: str) -> None:
    with pytest.raises(PlanMistake) as caught:
        build()
    assert caught.value.path == path
    assert caught.value.hint
    assert isinstance(caught.value, PermanentError)
