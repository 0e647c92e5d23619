"""What may be submitted, and how a refusal says why not."""

import json
from typing import Any

import pytest

from schemas.canonical import MAX_DEPTH, hash_of
from schemas.run import (
    DEFAULT_LIMITS,
    Submission,
    SubmissionInvalid,
    SubmissionLimits,
    hash_of_kept,
    read_submission,
    submission_hash,
    submission_text,
)

SMALL = SubmissionLimits(goal_bytes=40, plan_bytes=10)


def refusal(limits: SubmissionLimits = SMALL, **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(SubmissionInvalid) as caught:
        read_submission(fields, limits)
    return [(issue.path, issue.kind) for issue in caught.value.issues]


def test_everything_that_can_be_said() -> None:
    fields = {
        "goal": "fulfil",
        "context": {"order": 7},
        "planner": "orders.fulfil",
        "session_id": "shop",
        "request_id": "order-7",
        "policy": {"actions": ["b", "a"], "limits": {"attempts": 1}},
        "deadline_s": 60,
    }
    submission = read_submission(fields)
    assert submission.policy is not None
    assert submission.policy.actions == frozenset({"a", "b"})
    assert Submission.model_validate_json(submission_text(submission)) == submission
    assert json.loads(submission_text(submission)) == fields | {
        "policy": {"actions": ["a", "b"], "limits": {"attempts": 1}}
    }


def test_null_means_left_out() -> None:
    bare = read_submission({"planner": "p"})
    assert submission_text(bare) == '{"planner":"p"}'
    nulls = dict.fromkeys(Submission.model_fields) | {"planner": "p"}
    assert submission_hash(read_submission(nulls)) == submission_hash(bare)


SPELLINGS: list[Any] = [
    {"a": "é", "b": 1},
    {"b": 1.0, "a": "é"},
    ' {"b": 1.0, "a": "é"} ',
    '{"a":"\\u00e9","b":1}',
    '{\n  "b": 1e0,\n  "a": "é"\n}',
]


def test_a_context_may_be_sent_as_text() -> None:
    for spelt in SPELLINGS:
        read = read_submission({"planner": "p", "context": spelt})
        assert read.context_value() == {"a": "é", "b": 1}
        assert read.context_hash() == hash_of({"a": "é", "b": 1})


def test_how_a_context_is_spelt_makes_no_other_submission() -> None:
    assert {submission_text(read_submission({"planner": "p", "context": spelt})) for spelt in SPELLINGS} == {
        '{"context":{"a":"é","b":1},"planner":"p"}'
    }


@pytest.mark.parametrize("nothing", [{"context": {}}, {"context": " { } "}, {"policy": {}}])
def test_what_says_nothing_is_as_good_as_left_out(nothing: dict[str, Any]) -> None:
    assert submission_text(read_submission({"planner": "p", **nothing})) == '{"planner":"p"}'


@pytest.mark.parametrize(
    "kept",
    [
        '{"context":{"a":1},"planner":"p"}',
        '{"context":" {\\"a\\": 1.0}","planner":"p"}',
        '{"context":{"a":1},"planner":"p","policy":{}}',
    ],
)
def test_what_an_older_release_kept_is_hashed_by_what_it_says(kept: str) -> None:
    assert hash_of_kept(kept) == submission_hash(read_submission({"planner": "p", "context": {"a": 1}}))
    assert submission_text(Submission.model_validate_json(kept)) == '{"context":{"a":1},"planner":"p"}'


def test_a_context_goes_as_deep_as_its_submission_may() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = {"a": deep}
    for sent in (deep, json.dumps(deep)):
        assert read_submission({"planner": "p", "context": sent}).context_value() == deep
    for sent in ({"a": deep}, json.dumps({"a": deep})):
        assert [kind for _, kind in refusal(DEFAULT_LIMITS, planner="p", context=sent)] == ["too_deep"]


def test_no_context_is_the_empty_object() -> None:
    submission = read_submission({"planner": "p", "goal": "x"})
    assert submission.context_value() == {}
    assert submission.context_hash() == hash_of({})


def test_hashes_tell_submissions_apart() -> None:
    variants: list[dict[str, Any]] = [
        {"planner": "p"},
        {"planner": "q"},
        {"plan": "p"},
        {"planner": "p", "goal": "x"},
        {"planner": "p", "context": {"x": [1]}},
        {"planner": "p", "context": {"x": ["1"]}},
        {"planner": "p", "context": {"x": [1.5]}},
        {"planner": "p", "context": {"x": [None]}},
        {"planner": "p", "context": {"x": None}},
        {"planner": "p", "session_id": "s"},
        {"planner": "p", "request_id": "s"},
        {"planner": "p", "deadline_s": 5},
        {"planner": "p", "policy": {"deadline_s": 5}},
    ]
    assert len({submission_hash(read_submission(fields)) for fields in variants}) == len(variants)


@pytest.mark.parametrize(
    ("fields", "faults"),
    [
        ({}, [("planner", "planner_missing")]),
        ({"goal": "x"}, [("planner", "planner_missing")]),
        ({"planner": "p", "plan": "{}"}, [("planner", "planner_and_plan")]),
        ({"planner": "P"}, [("planner", "string_pattern_mismatch")]),
        ({"planner": 5}, [("planner", "string_type")]),
        ({"planner": "p", "goal": ""}, [("goal", "string_too_short")]),
        ({"planner": "p", "goal": "x" * 41}, [("goal", "too_large")]),
        ({"planner": "p", "goal": "é" * 20, "context": {"a": 1}}, [("context", "too_large")]),
        ({"planner": "p", "context": " " * 41}, [("context", "too_large")]),
        ({"plan": "é" * 6}, [("plan", "too_large")]),
        ({"plan": {}}, [("plan", "string_type")]),
        ({"planner": "p", "context": []}, [("context", "not_an_object")]),
        ({"planner": "p", "context": "[]"}, [("context", "not_an_object")]),
        ({"planner": "p", "context": "{"}, [("context", "syntax")]),
        ({"planner": "p", "context": '{"a":{"b":1,"b":2}}'}, [("context.a.b", "duplicate_key")]),
        ({"planner": "p", "context": {"a": [1, 2**53]}}, [("context.a.1", "integer_range")]),
        ({"planner": "p", "context": {"a": float("inf")}}, [("context.a", "not_finite")]),
        ({"planner": "p", "context": {"a": "\ud800"}}, [("context.a", "surrogate")]),
        ({"planner": "p", "context": r'{"a":"\ud800"}'}, [("context.a", "surrogate")]),
        ({"planner": "p", "context": {"a": object()}}, [("context.a", "not_json")]),
        ({"planner": "p", "session_id": ""}, [("session_id", "string_too_short")]),
        ({"planner": "p", "request_id": "r" * 257}, [("request_id", "string_too_long")]),
        ({"planner": "p", "deadline_s": 0}, [("deadline_s", "greater_than")]),
        ({"planner": "p", "deadline_s": True}, [("deadline_s", "float_type")]),
        ({"planner": "p", "policy": {"limits": {"attempts": 0}}}, [("policy.limits.attempts", "greater_than_equal")]),
        ({"planner": "p", "call_back": "https://example.org"}, [("call_back", "extra_forbidden")]),
        ({"planner": "p", "callback": "ftp://example.org"}, [("callback", "callback")]),
        ({"planner": "p", "principal": "root"}, [("principal", "extra_forbidden")]),
    ],
)
def test_refusals_name_their_place(fields: dict[str, Any], faults: list[tuple[str, str]]) -> None:
    assert refusal(**fields) == faults


def test_a_limit_is_named_with_its_setting() -> None:
    with pytest.raises(
        SubmissionInvalid, match="goal: 41 bytes, at most 40 are allowed; MANDOR_GOAL_BYTES sets the limit"
    ):
        read_submission({"planner": "p", "goal": "x" * 41}, SMALL)
    with pytest.raises(SubmissionInvalid, match="MANDOR_PLAN_BYTES"):
        read_submission({"plan": "x" * 11}, SMALL)


def test_goal_and_context_may_fill_the_limit() -> None:
    assert read_submission({"planner": "p", "goal": "x" * 33, "context": {"a": 1}}, SMALL).planner == "p"


def test_what_was_accepted_can_be_read_whatever_the_limits_are_now() -> None:
    stored = submission_text(
        read_submission({"planner": "p", "goal": "x" * 300_000}, SubmissionLimits(goal_bytes=400_000))
    )
    assert len(Submission.model_validate_json(stored).goal or "") == 300_000
