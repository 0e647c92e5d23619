"""Order: needs, references to results, and steps that would write the same."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, model_validator

from orchestrator.admission import Catalogue, Referable
from tests.support.plans import admit, command, faults, file, plan_text
from workers import Context
from workers.registry import Registry


class Send(BaseModel):
    to: str
    amount: Annotated[int, Referable]
    fee: Annotated[int, Referable] = 1
    body: Annotated[dict[str, Any], Referable] = {}
    free: dict[str, Any] = {}

    @model_validator(mode="after")
    def sensible(self) -> "Send":
        if self.amount <= self.fee:
            raise ValueError("the fee exceeds the amount")
        return self


def sending() -> Catalogue:
    registry = Registry()

    def target(params: Send) -> str:
        return params.to

    @registry.action("send", effect="keyed", exclusive=target)
    def send(params: Send, ctx: Context) -> None:
        """Send."""

    @registry.action("look", effect="pure")
    def look(params: Empty, ctx: Context) -> None:
        """Look."""

    return registry.catalogue()


class Empty(BaseModel):
    pass


def ref(step: Any, path: Any = "/amount", **more: Any) -> dict[str, Any]:
    return {"$result": step, "path": path} | more


def look(**fields: Any) -> dict[str, Any]:
    return {"action": "look", "params": {}} | fields


def send(to: Any = "x", amount: Any = 5, **params: Any) -> dict[str, Any]:
    fields = {key: params.pop(key) for key in ("id", "needs") if key in params}
    return {"action": "send", "params": {"to": to, "amount": amount} | params} | fields


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([command(id="a"), command(id="a")], ("steps.1.id", "duplicate_id")),
        ([command(id="s1"), command()], ("steps.1.id", "duplicate_id")),
        ([command(id="a", needs=["a"])], ("steps.0.needs.0", "needs_itself")),
        ([command(needs=["s1"]), command()], ("steps.0.needs.0", "needs_later")),
        ([command(), command(needs=["x"])], ("steps.1.needs.0", "unknown_step")),
        ([command(), command(needs=["s0", "s0"])], ("steps.1.needs.1", "repeated_need")),
    ],
)
def test_ids_and_needs_must_fit_together(steps: list[Any], expected: tuple[str, str]) -> None:
    assert faults(plan_text(*steps)) == [expected]


@pytest.mark.parametrize(
    "steps",
    [
        [look(), send(amount=ref("s0"))],
        [look(id="a"), look(), look(), send(amount=ref("a", ""), fee=ref("s1", "/a~1b/0"))],
        [look(id="a"), look(id="b", needs=[]), send(needs=["a", "b"], amount=ref("a"), body=ref("b"))],
    ],
)
def test_a_step_may_name_results_of_what_it_waits_for(steps: list[Any]) -> None:
    step = admit(plan_text(*steps), sending()).steps[-1]
    assert step.refs == tuple(
        sorted({value["$result"] for value in steps[-1]["params"].values() if "$result" in value})
    )
    assert step.params["amount"] == steps[-1]["params"]["amount"]
    assert step.params["free"] == {}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([look(), send(amount=ref("nope"))], ("amount.$result", "reference")),
        ([look(), send(amount=ref("s1"))], ("amount.$result", "reference")),
        ([look(), send(needs=[], amount=ref("s0"))], ("amount.$result", "reference")),
        ([look(), send(amount=ref(0))], ("amount.$result", "type")),
        ([look(), send(amount=ref("S0"))], ("amount.$result", "value")),
        ([look(), send(amount=ref("s0", "amount"))], ("amount.path", "value")),
        ([look(), send(amount=ref("s0", None))], ("amount.path", "type")),
        ([look(), send(amount={"$result": "s0"})], ("amount.path", "missing")),
        ([look(), send(amount=ref("s0", default=1))], ("amount.default", "extra")),
        ([look(), send(to=ref("s0"))], ("to", "type")),
        ([look(), send(amount=ref("s0"), fee="1")], ("fee", "type")),
        ([look(), send(amount=ref("s0"), extra=1)], ("extra", "extra")),
    ],
)
def test_other_references_are_refused(steps: list[Any], expected: tuple[str, str]) -> None:
    path, kind = expected
    assert faults(plan_text(*steps), sending()) == [(f"steps.1.params.{path}", kind)]


def test_elsewhere_such_a_value_is_data() -> None:
    data = {"x": ref("nobody"), "$result": "s0", "path": "/y"}
    step = admit(plan_text(look(), send(free=data)), sending()).steps[-1]
    assert step.refs == ()
    assert step.params["free"] == data


def test_the_model_as_a_whole_is_judged_once_the_values_are_there() -> None:
    assert faults(plan_text(send(amount=1)), sending()) == [("steps.0.params", "value")]
    assert admit(plan_text(look(), send(amount=ref("s0"), fee=9)), sending()).steps
    assert admit(plan_text(look(), send(amount=0, fee=ref("s0"))), sending()).steps


@pytest.mark.parametrize(
    "steps",
    [
        [file("a"), file("a")],
        [file("a"), file("b"), file("a")],
        [file("a", needs=[]), file("b", needs=[])],
        [file("a", id="x"), file("b", needs=[], id="y"), file("a", needs=["x", "y"])],
        [command(), file("a", {"$result": "s0", "path": "/stdout_head"})],
    ],
)
def test_ordered_steps_may_write_one_path(steps: list[Any]) -> None:
    assert admit(plan_text(*steps)).steps


@pytest.mark.parametrize(
    ("steps", "at"),
    [
        ([file("a"), file("a", needs=[])], 1),
        ([command(id="x"), file("a"), file("b", needs=["x"]), file("a", needs=["x"])], 3),
        ([command(), file("a", {"$result": "s0", "path": ""}), file("a", needs=["s0"])], 2),
    ],
)
def test_unordered_steps_may_not_write_one_path(steps: list[Any], at: int) -> None:
    assert faults(plan_text(*steps)) == [(f"steps.{at}.params", "conflict")]


def test_unordered_steps_may_not_change_one_record() -> None:
    """However it is spelt: undone in another order, neither would find what it left."""
    box = "9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01"
    change = {"action": "mutate_record", "needs": []}
    first = change | {"id": "a", "params": {"entity_id": box, "changes": {"lid": 1}}}
    second = change | {"id": "b", "params": {"entity_id": box.upper(), "changes": {"lid": 2}}}
    assert faults(plan_text(first, second)) == [("steps.1.params", "conflict")]
    assert admit(plan_text(first, second | {"needs": ["a"]})).steps


def test_names_of_different_actions_are_compared_too() -> None:
    both = Catalogue(dict(sending().actions) | {"other": sending().actions["send"]})
    text = plan_text(send("x"), send("x", needs=[], id="b") | {"action": "other"}, look(needs=[]))
    assert faults(text, both) == [("steps.1.params", "conflict")]
