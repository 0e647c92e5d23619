"""What an action may return."""

import datetime as dt
from typing import Any

import pytest
from pydantic import BaseModel

from workers.results import ResultRefused, ResultTooLarge, result_text


class Receipt(BaseModel):
    id: str
    at: dt.date


class Other(BaseModel):
    id: str


def test_a_model_is_stored_as_canonical_json() -> None:
    receipt = Receipt(id="r1", at=dt.date(2026, 1, 31))
    assert result_text(receipt, Receipt, 100) == '{"at":"2026-01-31","id":"r1"}'


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), ({"b": 1, "a": [True, 1.0]}, '{"a":[true,1],"b":1}'), ("é", '"é"'), ((1, 2), "[1,2]")],
)
def test_plain_values_need_no_model(value: Any, text: str) -> None:
    assert result_text(value, None, 100) == text


def test_fields_of_the_declared_model_will_do() -> None:
    assert result_text({"id": "r1"}, Other, 100) == '{"id":"r1"}'


def test_what_does_not_fit_the_declared_model_is_named() -> None:
    with pytest.raises(ResultRefused) as refused:
        result_text({"id": 7}, Other, 100)
    assert refused.value.path == "result.id"
    assert "Other" in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), {"deep": {"n": 2**60}}, "\ud800", object()])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ResultRefused) as refused:
        result_text(value, None, 100)
    assert (refused.value.path or "").startswith("result")


def test_too_much_is_refused_with_size_limit_and_setting() -> None:
    with pytest.raises(ResultTooLarge) as refused:
        result_text("x" * 98 + "é", None, 101)
    assert "102 bytes" in str(refused.value)
    assert "101" in str(refused.value)
    assert "MANDOR_RESULT_BYTES" in str(refused.value)
