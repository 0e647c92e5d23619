"""References become values, and values must fit."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.admission import ActionSpec, Referable, WorkspacePath
from schemas.states import EffectClass
from workers.binding import StepInputInvalid, bind, pointed
from workers.outcomes import PermanentError


class Send(BaseModel):
    to: Annotated[WorkspacePath, Referable]
    amount: Annotated[int, Referable] = 1
    free: dict[str, Any] = {}


SPEC = ActionSpec("send", EffectClass.KEYED, Send)
INPUTS = {
    "a": '{"n": 5, "name": "x", "list": [1, {"a/b": 9007199254740993}], "bad": "a\\u0000", "f": 5.0}',
    "b": '"text"',
}


def ref(step: str, path: str = "") -> dict[str, str]:
    return {"$result": step, "path": path}


def test_values_take_the_place_of_references() -> None:
    params = bind(SPEC, {"to": ref("b"), "amount": ref("a", "/list/1/a~1b"), "free": ref("a")}, INPUTS, index=3)
    assert params == Send(to="text", amount=9007199254740993, free=ref("a"))


def test_params_without_references_are_validated_too() -> None:
    assert bind(SPEC, {"to": "x"}, {}, index=0) == Send(to="x")


@pytest.mark.parametrize(
    ("params", "path", "words"),
    [
        ({"to": "x", "amount": ref("a", "/nope")}, "amount", "has nothing at '/nope'"),
        ({"to": "x", "amount": ref("c")}, "amount", "the result of 'c'"),
        ({"to": "x", "amount": ref("a", "/name")}, "amount", "valid integer"),
        ({"to": "x", "amount": ref("a", "/f")}, "amount", "valid integer"),
        ({"to": ref("a", "/n")}, "to", "valid string"),
        ({"to": ref("a", "/bad")}, "to", "control"),
        ({"amount": 1}, "to", "required"),
    ],
)
def test_what_does_not_fit_fails_for_good(params: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(StepInputInvalid, match=words) as caught:
        bind(SPEC, params, INPUTS, index=3)
    assert isinstance(caught.value, PermanentError)
    assert caught.value.path == f"steps.3.params.{path}"
    assert caught.value.hint


DOCUMENT = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, "~1": 2, "01": 3, " ": 7}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/m~0n", 8),
        ("/~01", 2),
        ("/01", 3),
        ("/ ", 7),
    ],
)
def test_pointers_of_the_rfc(pointer: str, value: Any) -> None:
    assert pointed(DOCUMENT, pointer) == value


@pytest.mark.parametrize(
    "pointer", ["/x", "/foo/2", "/foo/-1", "/foo/-", "/foo/01", "/foo/\u0661", "/foo/0/x", "/foo/" + "9" * 9]
)
def test_pointers_to_nothing(pointer: str) -> None:
    with pytest.raises(LookupError):
        pointed(DOCUMENT, pointer)
