"""Letters that say the same have one fingerprint; what differs each time does not count."""

from typing import Any

import pytest

from schemas.fingerprint import LENGTH, fingerprint


def plan(*faults: tuple[str, str], **more: Any) -> str:
    errors = [{"kind": kind, "path": path, "message": f"said about {path}"} for kind, path in faults]
    attempts = [{"errors": [{"kind": "other", "path": "x"}]}, {"errors": errors}]
    return fingerprint("plan", "no matter", {"planner": "p", "attempts": attempts, **more})


def test_the_same_faults_of_other_steps_are_the_same() -> None:
    one = plan(("string_type", "steps.0.params.value"), ("string_type", "steps.3.params.value"))
    assert one == plan(("string_type", "steps.7.params.value"))
    assert len(one) == LENGTH


@pytest.mark.parametrize(
    "other",
    [
        plan(("string_type", "steps.0.params.name")),
        plan(("missing", "steps.0.params.value")),
        plan(("string_type", "steps.0.params.value"), planner="q"),
        plan(("string_type", "steps.0.params.value"), ("missing", "steps.1.action")),
    ],
)
def test_other_faults_other_places_and_other_planners_are_not(other: str) -> None:
    assert other != plan(("string_type", "steps.0.params.value"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("no order 17 of 'ann'", "no order 4711 of 'bob'", True),
        ("run 0b6b0cf3-3f43-4b7e-9d76-6f0b7dbd6a11 is gone", "run 9b6b0cf3-3f43-4b7e-9d76-6f0b7dbd6a12 is gone", True),
        ("the bank said no", "the bank said maybe", False),
        ("defaced", "decade", False),  # words of letters that hexadecimal numbers have, too
    ],
)
def test_numbers_ids_and_quotations_do_not_count(one: str, other: str, same: bool) -> None:
    assert (fingerprint("step", one, {"action": "a"}) == fingerprint("step", other, {"action": "a"})) is same


def test_an_undo_is_known_by_its_error_and_not_by_its_step() -> None:
    error = {"kind": "error", "message": "the bank is closed"}
    one = fingerprint("undo", "pay (bank, keyed) could not be undone: …", {"action": "bank", "error": error})
    assert one == fingerprint("undo", "pay2 (bank, keyed) could not be undone: …", {"action": "bank", "error": error})


@pytest.mark.parametrize("attempts", [None, [], "x", [None], [{"errors": "x"}], [{"errors": [1, None]}]])
def test_a_letter_of_any_shape_has_one(attempts: Any) -> None:
    assert len(fingerprint("plan", "\ud800", {"action": 3, "attempts": attempts})) == LENGTH


def delivery(status: int | None, error: str = "status", url: str = "https://a.example/x") -> str:
    content = {"url": url, "status_code": status, "error": error}
    return fingerprint("delivery", f"the callback was given up after 9 attempts: status {status}", content)


@pytest.mark.parametrize("other", [delivery(302), delivery(None, "timeout"), delivery(500, url="https://b.example/x")])
def test_callbacks_are_put_together_by_host_and_answer(other: str) -> None:
    assert delivery(500) == delivery(500, url="https://A.example:443/x")
    assert delivery(500) == delivery(500, url="https://a.example/y?order=17") != other
