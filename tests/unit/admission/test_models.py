"""Plan, steps and params against their models: strict at every depth, faults where they are."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, SecretStr, field_validator

from orchestrator.admission import Catalogue, PlainUUID, Referable
from tests.support.plans import HASH, PLAN_ID, admit, command, faults, file, plan_text, record, refused
from workers import Context
from workers.registry import Registry


class Line(BaseModel):
    model_config = ConfigDict(extra="allow", strict=False)

    sku: str
    count: int = Field(1, strict=False)


@dataclass
class Address:
    city: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


class Order(BaseModel):
    lines: list[Line]
    ship: Address | None = None
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    owner: PlainUUID | None = None
    weight: int | str | None = None
    note: str = Field("", alias="remark")
    first: Line | None = None
    token: SecretStr | None = None
    cents: Annotated[int, PlainSerializer(str)] = 0

    @field_validator("note")
    @classmethod
    def crash(cls, note: str) -> str:
        if note == "crash":
            raise KeyError(note)
        return note


def ordered() -> Catalogue:
    registry = Registry()

    @registry.action("order", effect="pure")
    def order(params: Order, ctx: Context) -> None:
        """Take an order."""

    return registry.catalogue()


def order(**params: Any) -> str:
    return plan_text({"action": "order", "params": {"lines": []} | params})


@pytest.mark.parametrize(
    ("params", "path", "kind"),
    [
        ({"lines": [{"sku": "a", "colour": "red"}]}, "lines.0.colour", "extra"),
        ({"lines": [{"sku": "a", "count": "2"}]}, "lines.0.count", "type"),
        ({"lines": [{"sku": "a", "count": 2.0}]}, "lines.0.count", "type"),
        ({"lines": [{"count": 2}]}, "lines.0.sku", "missing"),
        ({"lines": {"0": {}}}, "lines", "type"),
        ({"ship": {"city": 1}}, "ship.city", "type"),
        ({"ship": {"city": "x", "zip": 1}}, "ship.zip", "extra"),
        ({"pet": {"kind": "cat", "lives": "9"}}, "pet.lives", "type"),
        ({"pet": {"kind": "dog", "lives": 9}}, "pet.lives", "extra"),
        ({"pet": {"kind": "cow"}}, "pet", "value"),
        ({"weight": 1.5}, "weight", "type"),
        ({"owner": "9c1f0a527d3e4b88a6f42e5d7c8b9a01"}, "owner", "value"),
        ({"owner": 5}, "owner", "type"),
        ({"note": "x"}, "note", "extra"),
        ({"remark": None}, "remark", "type"),
        ({"remark": "crash"}, "", "model"),
    ],
)
def test_users_models_are_strict_all_the_way_down(params: dict[str, Any], path: str, kind: str) -> None:
    found = faults(order(**params), ordered())
    assert (f"steps.0.params.{path}".rstrip("."), kind) in found


def test_defaults_are_written_out_and_given_values_stay_as_they_are() -> None:
    given = {"lines": [{"sku": "a"}], "first": {"sku": "b", "count": 3}, "token": "s3cret", "cents": 5}
    (step,) = admit(order(**given), ordered()).steps
    assert step.params == {
        "lines": [{"sku": "a", "count": 1}],
        "first": {"sku": "b", "count": 3},
        "token": "s3cret",
        "cents": 5,
        "ship": None,
        "pet": None,
        "owner": None,
        "weight": None,
        "remark": "",
    }


def test_ids_and_needs_are_written_out() -> None:
    first, second, third = admit(plan_text(command(id="a"), command(), command(needs=[]))).steps
    assert [(step.id, step.needs) for step in (first, second, third)] == [("a", ()), ("s1", ("a",)), ("s2", ())]
    assert first.params == {"command": "true", "timeout_ms": 5000}
    assert (
        second.text == '{"action":"run_command","id":"s1","needs":["a"],"params":{"command":"true","timeout_ms":5000}}'
    )
    assert second.token.startswith(f"step:{PLAN_ID}:1:")


def test_the_plan_id_has_one_spelling() -> None:
    lower, upper = admit(plan_text(command())), admit(plan_text(command(), plan_id=PLAN_ID.upper()))
    assert upper.plan_hash == lower.plan_hash
    assert upper.plan_id == PLAN_ID


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (plan_text(), [("steps", "value")]),
        (plan_text(5, command()), [("steps.0", "type")]),
        (plan_text(command(note="x")), [("steps.0.note", "extra")]),
        (plan_text(command(), extra=1), [("extra", "extra")]),
        (plan_text(command(), context_hash=HASH[:-1]), [("context_hash", "value")]),
        (plan_text(command(), steps={"0": {}}), [("steps", "type")]),
        (plan_text(command(id=None)), [("steps.0.id", "value")]),
        (plan_text({"action": "run_command"}), [("steps.0.params", "missing")]),
        (plan_text(command(params="{}")), [("steps.0.params", "type")]),
        (plan_text(command(action="Run Command")), [("steps.0.action", "unknown_action")]),
        (plan_text(command(action=["run_command"])), [("steps.0.action", "type")]),
    ],
)
def test_the_shape_of_plan_and_steps(text: str, expected: list[tuple[str, str]]) -> None:
    assert faults(text) == expected


def test_faults_of_shape_and_of_params_are_told_together_in_order() -> None:
    text = plan_text(command(), file(path=""), command(why="x"), record([]), {"action": "fly", "params": {}})
    assert faults(text) == [
        ("steps.1.params.path", "value"),
        ("steps.2.why", "extra"),
        ("steps.3.params.changes", "type"),
        ("steps.4.action", "unknown_action"),
    ]


def test_an_unknown_action_is_told_the_known_ones() -> None:
    (issue,) = refused(plan_text({"action": "execute_python", "params": {}}))
    assert "create_file, mutate_record, run_command" in issue.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"steps": 1, "steps": 2}', ("steps", "duplicate_key")),
        ('{"steps": [{"params": {"n": 1e999}}]}', ("steps.0.params.n", "number")),
        ('{"a": {"b": [1, {"c": 1, "c": 1}]}}', ("a.b.1.c", "duplicate_key")),
        ('{"a": ' + "[" * 64 + "]" * 64 + "}", ("a" + ".0" * 63, "depth")),
    ],
)
def test_what_readers_could_take_differently_is_refused_with_its_path(text: str, expected: tuple[str, str]) -> None:
    assert faults(text) == [expected]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [(b"\xff{}", "encoding"), ("\ud800{}", "encoding"), (None, "type"), ({"steps": []}, "type"), (b"", "extraction")],
)
def test_what_is_no_text_is_refused(raw: Any, kind: str) -> None:
    assert faults(raw) == [("", kind)]


@pytest.mark.parametrize("reason", ["content_filter", "refusal", "error", ""])
def test_an_answer_that_its_model_broke_off_is_not_parsed(reason: str) -> None:
    assert faults(plan_text(command()), finish_reason=reason) == [("", "unfinished")]


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "model_context_window_exceeded"])
def test_a_cut_answer_is_a_failure_of_its_own_kind_even_where_it_parses(reason: str) -> None:
    assert faults(plan_text(command()), finish_reason=reason) == [("", "cut")]


@pytest.mark.parametrize("reason", ["stop", "STOP", "end_turn", "tool_calls", None])
def test_an_answer_that_its_model_ended_is_parsed(reason: str | None) -> None:
    assert admit(plan_text(command()), finish_reason=reason).steps


def test_another_context_is_drift() -> None:
    assert admit(plan_text(command()), context_hash=HASH).steps
    assert faults(plan_text(command()), context_hash="0" * 64) == [("context_hash", "context")]


def test_uuid_fields_are_uuids() -> None:
    spec = ordered().actions["order"]
    reading = spec.reader.read({"lines": [], "owner": "9C1F0A52-7D3E-4B88-A6F4-2E5D7C8B9A01"}, ())
    assert isinstance(reading.params, Order)
    assert reading.params.owner == UUID("9c1f0a52-7d3e-4b88-a6f4-2e5d7c8b9a01")


class Factory(BaseModel):
    at: list[int] = Field(default_factory=lambda: [1])
    amount: Annotated[int, Referable] = 3


def test_default_factories_are_written_out() -> None:
    registry = Registry()

    @registry.action("make", effect="pure")
    def make(params: Factory, ctx: Context) -> None:
        """Make."""

    (step,) = admit(plan_text({"action": "make", "params": {}}), registry.catalogue()).steps
    assert step.params == {"at": [1], "amount": 3}
