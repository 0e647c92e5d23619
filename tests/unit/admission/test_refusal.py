"""What a refusal says: little, harmless, and enough."""

import json
import pickle
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from orchestrator.admission import MAX_ISSUES, Issue, Kind, PayloadDrift
from orchestrator.admission.params import issues_at
from orchestrator.admission.refusal import excerpt
from orchestrator.errors import MandorError
from tests.support.plans import command, file, plan_text, refused


def test_it_is_one_of_our_errors() -> None:
    drift = PayloadDrift([Issue("steps.0.id", Kind.VALUE, "bad"), Issue("", Kind.EXTRA, "worse")])
    assert isinstance(drift, MandorError)
    assert drift.as_json() == {
        "kind": "payload_drift",
        "message": "bad (and 1 more fault)",
        "path": "steps.0.id",
        "hint": None,
    }
    assert drift.errors()[1] == {"path": None, "kind": "extra", "message": "worse"}
    assert json.dumps(drift.errors())


def test_it_survives_the_way_between_processes() -> None:
    drift = PayloadDrift([Issue("steps.0.id", Kind.VALUE, "bad")])
    assert pickle.loads(pickle.dumps(drift)).issues == drift.issues


class Login(BaseModel):
    """Refuses whatever it is given, each field in another way."""

    user: int
    password: int
    apiKey: Literal["a"]  # noqa: N815
    token: str

    @field_validator("token")
    @classmethod
    def refuse(cls, token: str) -> str:
        """Quote it."""
        raise ValueError(f"not {token}")


def test_values_are_quoted_but_for_those_whose_name_says_that_they_are_secret() -> None:
    raw: dict[str, Any] = dict.fromkeys(("user", "password", "apiKey", "token"), "hunter2")
    with pytest.raises(ValidationError) as refusal:
        Login.model_validate(raw)
    told = {issue.path: issue.message for issue in issues_at(refusal.value, raw)}
    assert list(told) == list(raw)
    assert [path for path, message in told.items() if "hunter2" in message] == ["user"]
    assert told["token"] == "the value is refused"
    assert "valid integer" in told["password"]


def test_a_secret_in_a_message_is_hidden_before_it_is_cut() -> None:
    (issue,) = PayloadDrift([Issue("", Kind.VALUE, "x" * 280 + " password=correct-horse-battery-staple")]).issues
    assert "correct" not in issue.message


def test_at_most_twenty_issues() -> None:
    assert len(refused(plan_text(*[command("")] * 50))) == MAX_ISSUES
    assert len(refused(plan_text(*[{}] * 50))) == MAX_ISSUES
    assert len(refused(plan_text(*[command(needs=["x"])] * 50))) == MAX_ISSUES
    assert len(refused(plan_text({"action": "create_file", "params": {f"k{n}": 1 for n in range(50)}}))) == MAX_ISSUES


@pytest.mark.parametrize("noise", ["\x1b[2J", "\r\n", "\u202e", "\u200b", "\ufeff", "\x00"])
def test_attackers_text_is_escaped(noise: str) -> None:
    key, value = f"k{noise}", f"v{noise}"
    texts = [
        plan_text(command() | {key: value}),
        plan_text(file(path=value)),
        plan_text({"action": value, "params": {}}),
        plan_text(command(needs=[value])),
        plan_text(command(), **{key: value}),
        f'{{"a": {{{json.dumps(key)}: 1, {json.dumps(key)}: 1}}}}',
    ]
    for issue in [issue for text in texts for issue in refused(text)]:
        assert noise not in issue.path + issue.message
        assert (issue.path + issue.message).isprintable()


def test_attackers_text_is_cut() -> None:
    long = "x" * 100_000
    texts = [
        plan_text(command() | {long: 1}),
        plan_text({"action": long, "params": {}}),
        plan_text(command(needs=[long])),
        plan_text(command(id=long)),
        plan_text({"action": "mutate_record", "params": {"entity_id": long, "changes": {}}}),
        f'{{"a": {{"{long}": 1, "{long}": 1}}}}',
    ]
    for issue in [issue for text in texts for issue in refused(text)]:
        assert len(issue.path) < 500
        assert len(issue.message) < 400


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", '"a"'),
        ("x" * 61, '"' + "x" * 60 + '"…'),
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        (10**4000, "a huge number"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_excerpts_look_like_json(value: object, shown: str) -> None:
    assert excerpt(value) == shown
