"""The JSON schema that is shown to a model."""

import re
from typing import Annotated

from pydantic import BaseModel

from orchestrator.admission import Catalogue, Referable
from tests.support.plans import built_in
from workers import Context
from workers.registry import Registry


class Inner(BaseModel):
    n: int


class Outer(BaseModel):
    inner: Inner
    amount: Annotated[int, Referable]


def shared() -> Catalogue:
    registry = Registry()

    @registry.action("one", effect="pure")
    def one(params: Outer, ctx: Context) -> None:
        """The first.

        Not told to a model.
        """

    @registry.action("two", effect="pure")
    def two(params: Outer, ctx: Context) -> None: ...

    return registry.catalogue()


def test_every_object_is_closed_and_every_action_is_there() -> None:
    schema = built_in().json_schema()
    steps = schema["properties"]["steps"]["items"]["anyOf"]
    assert [step["properties"]["action"]["const"] for step in steps] == ["create_file", "mutate_record", "run_command"]
    assert schema["additionalProperties"] is False
    assert all(step["additionalProperties"] is False for step in steps)
    assert schema["required"] == ["plan_id", "context_hash", "steps"]


def test_only_what_is_allowed_is_shown() -> None:
    steps = built_in().json_schema(frozenset({"create_file"}))["properties"]["steps"]["items"]["anyOf"]
    assert [step["properties"]["action"]["const"] for step in steps] == ["create_file"]


def test_referable_fields_offer_a_reference_once() -> None:
    schema = shared().json_schema()
    outer = schema["$defs"]["Outer"]
    plain, reference = outer["properties"]["amount"]["anyOf"]
    assert plain["type"] == "integer"
    assert reference["required"] == ["$result", "path"]
    pattern = reference["properties"]["path"]["pattern"]
    assert [bool(re.search(pattern, path)) for path in ("", "/a/0", "/a~1b/~0", "/")] == [True] * 4
    assert [bool(re.search(pattern, path)) for path in ("a", "$.a", "/a~2", '/"', "/a\nb")] == [False] * 5
    assert schema["$defs"]["Inner"]["additionalProperties"] is False


def test_summaries_are_the_first_paragraph() -> None:
    one, two = shared().json_schema()["properties"]["steps"]["items"]["anyOf"]
    assert one["description"] == "The first."
    assert "description" not in two
