"""The corpora: each answer gets the verdict that is written beside it."""

from typing import Any

import pytest

from orchestrator.admission import Catalogue, PayloadDrift
from tests.support.corpora import cases, raw_of
from tests.support.plans import admit, built_in, plan_text


def verdict_of(raw: str) -> tuple[str, set[str | None]]:
    try:
        admission = admit(raw)
    except PayloadDrift as drift:
        return "reject", {error["path"] for error in drift.errors()}
    return ("accept_after_extraction" if admission.extracted else "accept"), set()


@pytest.mark.parametrize("case", cases("drift.jsonl"), ids=lambda case: case["id"])
def test_the_verdict_is_the_one_written_down(case: dict[str, Any]) -> None:
    verdict, paths = verdict_of(raw_of(case))
    assert verdict == case["verdict"], case["why"]
    if verdict == "reject":
        assert paths & {case["error_path"], *case.get("also_ok_paths", [])}, (case["why"], paths)


def test_integers_beyond_what_floats_hold_keep_their_digits() -> None:
    case = next(case for case in cases("drift.jsonl") if case["id"] == "num-06")
    assert '"counter":9007199254740993' in admit(case["raw"]).plan_text


@pytest.mark.parametrize(
    "case", [case for case in cases("hostile.jsonl") if "steps" in case], ids=lambda case: case["id"]
)
def test_a_hostile_plan_is_admitted_or_refused_by_its_params(case: dict[str, Any]) -> None:
    verdict, paths = verdict_of(plan_text(*case["steps"]))
    if verdict == "accept":
        assert case["contract_valid"]
    else:
        assert all(path and path.startswith("steps.") and ".params." in path for path in paths)


def test_the_built_in_actions_are_the_three() -> None:
    assert isinstance(built_in(), Catalogue)
    assert set(built_in().actions) == {"create_file", "mutate_record", "run_command"}
