"""The plan's shape, its defaults and its graph."""

import json
import time
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.issues import issues_of
from schemas.plan import ExecutionPlan, InvalidGraph, ResultRef, Step, with_defaults
from tests.support.plans import PLAN_ID


def plan(*steps: Any, **fields: Any) -> ExecutionPlan:
    document = {"plan_id": PLAN_ID, "context_hash": "0" * 64, "steps": list(steps), **fields}
    return ExecutionPlan.model_validate_json(json.dumps(document))


def step(**fields: Any) -> dict[str, Any]:
    return {"action": "noop", "params": {}, **fields}


def paths_of(*steps: Any, **fields: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        plan(*steps, **fields)
    return [issue.path for issue in issues_of(caught.value)]


def faults_of(*steps: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidGraph) as caught:
        with_defaults(plan(*steps).steps)
    return [(issue.path, issue.kind) for issue in caught.value.issues]


def test_a_plain_list_runs_in_sequence() -> None:
    resolved = with_defaults(plan(step(), step(), step()).steps)
    assert [(found.index, found.id, found.needs) for found in resolved] == [
        (0, "s0", ()),
        (1, "s1", ("s0",)),
        (2, "s2", ("s1",)),
    ]


def test_needs_that_are_given_are_kept() -> None:
    resolved = with_defaults(plan(step(id="a"), step(needs=[]), step(), step(needs=["a", "s2"])).steps)
    assert [found.needs for found in resolved] == [(), (), ("s1",), ("a", "s2")]


def test_a_resolved_step_is_written_with_nothing_left_out() -> None:
    (resolved,) = with_defaults([Step(action="noop", params={"x": 1})])
    assert resolved.as_json() == {"action": "noop", "params": {"x": 1}, "id": "s0", "needs": []}


@pytest.mark.parametrize(
    ("steps", "faults"),
    [
        ([step(id="a"), step(id="a")], [("steps.1.id", "duplicate_id")]),
        ([step(id="s1"), step()], [("steps.1.id", "duplicate_id")]),
        ([step(id="a", needs=["a"])], [("steps.0.needs.0", "needs_itself")]),
        ([step(needs=["b"]), step(id="b")], [("steps.0.needs.0", "needs_later")]),
        ([step(), step(needs=["s0", "TYPO"])], [("steps.1.needs.1", "unknown_step")]),
        ([step(), step(needs=["0"])], [("steps.1.needs.0", "unknown_step")]),
        ([step(), step(needs=["s0", "s0"])], [("steps.1.needs.1", "repeated_need")]),
        (
            [step(id="a"), step(id="a"), step(needs=["a", "x"])],
            [("steps.1.id", "duplicate_id"), ("steps.2.needs.1", "unknown_step")],
        ),
    ],
)
def test_every_fault_of_the_graph_is_named(steps: list[Any], faults: list[tuple[str, str]]) -> None:
    assert faults_of(*steps) == faults


def test_the_refusal_reads_well() -> None:
    with pytest.raises(
        InvalidGraph, match=r"^steps\.1\.id: steps\.0 has the id 's1' too, which this step has by default$"
    ):
        with_defaults(plan(step(id="s1"), step()).steps)


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (step(id=""), "steps.0.id"),
        (step(id="Step 1"), "steps.0.id"),
        (step(id="a:b"), "steps.0.id"),
        (step(id="a\n"), "steps.0.id"),
        (step(id="a" * 65), "steps.0.id"),
        (step(id=None), "steps.0.id"),
        (step(id=1), "steps.0.id"),
        (step(needs=None), "steps.0.needs"),
        (step(needs="a"), "steps.0.needs"),
        (step(needs=[1]), "steps.0.needs.0"),
        (step(action="Run"), "steps.0.action"),
        (step(params=[]), "steps.0.params"),
        (step(params=None), "steps.0.params"),
        (step(depends_on=["a"]), "steps.0.depends_on"),
        ({"action": "noop"}, "steps.0.params"),
        ([step()], "steps.0"),
    ],
)
def test_a_step_of_another_shape_is_refused(bad: Any, path: str) -> None:
    assert paths_of(bad) == [path]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"plan_id": PLAN_ID.replace("-", "")}, "plan_id"),
        ({"plan_id": PLAN_ID + "\n"}, "plan_id"),
        ({"plan_id": f"urn:uuid:{PLAN_ID}"}, "plan_id"),
        ({"plan_id": 7}, "plan_id"),
        ({"context_hash": "A" * 64}, "context_hash"),
        ({"context_hash": "0" * 63}, "context_hash"),
        ({"steps": []}, "steps"),
        ({"steps": {"0": step()}}, "steps"),
        ({"steps": [step()] * 10_001}, "steps"),
        ({"reasoning": "x"}, "reasoning"),
    ],
)
def test_a_plan_of_another_shape_is_refused(fields: dict[str, Any], path: str) -> None:
    assert paths_of(step(), **fields) == [path]


def test_a_plan_id_has_one_spelling_inside() -> None:
    assert plan(step(), plan_id=PLAN_ID.upper()).plan_id == PLAN_ID


def test_plans_do_not_change() -> None:
    built = ExecutionPlan(plan_id=PLAN_ID, context_hash="0" * 64, steps=[Step(action="noop", params={}, needs=["a"])])  # type: ignore[arg-type]
    assert built.steps[0].needs == ("a",)
    with pytest.raises(ValidationError):
        built.plan_id = PLAN_ID  # type: ignore[misc]


def test_ten_thousand_steps_that_need_much_are_read_quickly() -> None:
    built = plan(*(step(id=f"x{n}", needs=[f"x{m}" for m in range(max(0, n - 20), n)]) for n in range(10_000)))
    started = time.process_time()
    assert len(with_defaults(built.steps)) == 10_000
    assert time.process_time() - started < 5


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/0/~0~1"])
def test_references_point_with_json_pointers(path: str) -> None:
    ref = ResultRef.model_validate_json(json.dumps({"$result": "s0", "path": path}))
    assert (ref.result, ref.path) == ("s0", path)


@pytest.mark.parametrize(
    "document",
    [
        {"$result": "s0"},
        {"$result": "s0", "path": "a"},
        {"$result": "s0", "path": "/~2"},
        {"$result": "S", "path": ""},
        {"result": "s0", "path": ""},
        {"$result": "s0", "path": "", "else": 1},
    ],
)
def test_other_references_are_refused(document: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ResultRef.model_validate_json(json.dumps(document))
