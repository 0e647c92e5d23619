"""Stars in letters: which of them stand in place of a secret."""

import json
from typing import Any

import pytest

from orchestrator import stars
from orchestrator.telemetry.text import redacted


def letter(content: dict[str, Any]) -> dict[str, Any]:
    shown = redacted(content, 100, 10_000)
    return {**shown, **stars.told_apart(content, shown)}


def test_a_letter_without_stars_has_no_note() -> None:
    assert stars.NOTE not in letter({"submission": {"goal": "g"}})


@pytest.mark.parametrize(
    ("content", "at"),
    [
        ({"submission": {"goal": "a *** b"}}, []),
        ({"submission": {"goal": "a *** b", "password": "hunter22"}}, ["submission.password"]),
        ({"submission": {"password": {"old": 1}}}, ["submission.password"]),
        ({"submission": {"password": "***"}}, ["submission.password"]),
        ({"attempts": [{"raw": json.dumps({"a": "***", "token": "x"})}]}, ["attempts.0.raw.token"]),
        ({"attempts": [{"raw": "token=abcdefgh and ***"}]}, ["attempts.0.raw"]),
        ({"attempts": ({"raw": json.dumps([{"say": "password=hunter22"}])},)}, ["attempts.0.raw.0.say"]),
        ({"submission": {"plan": "[" * 5000 + "***"}}, []),
    ],
)
def test_a_letter_notes_where_secrets_were(content: dict[str, Any], at: list[str]) -> None:
    assert letter(content)[stars.NOTE]["at"] == at


def test_only_stars_that_may_be_secrets_are_found_in_an_edited_text() -> None:
    content = letter({"submission": {"goal": "a *** b", "password": "hunter22"}, "refusal": "r"})
    sent = {"goal": "a *** b", "moved": ["***"], "plan": json.dumps({"password": "***"})}
    assert stars.of_secrets(sent, content, "submission") == ["moved.0", "plan.password"]
    assert stars.of_secrets(sent, content, "attempts.0.raw") == []
    assert stars.of_secrets("***", content, "submission") == ["edited"]


@pytest.mark.parametrize(
    ("submission", "hidden"),
    [
        ({"mask": "***", "password": "hunter22"}, "password"),
        ({"say": "token=***", "note": "token=abcdefgh"}, "note"),
        ({"say": "token=abcdefgh", "mask": "token=***"}, "say"),
    ],
)
def test_what_looks_like_a_secret_that_was_taken_out_is_none_that_was_written(
    submission: dict[str, Any], hidden: str
) -> None:
    content = letter({"submission": submission})
    assert hidden in stars.of_secrets(content["submission"], content, "submission")


def test_a_letter_that_notes_nothing_may_have_had_secrets_anywhere() -> None:
    assert stars.of_secrets({"goal": "***"}, {"submission": {"goal": "***"}}, "submission") == ["goal"]
    assert stars.of_secrets({"goal": "***"}, {"submission": {"goal": "g"}}, "submission") == []
