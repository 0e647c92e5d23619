"""Scenarios, and parts of them, for which a plan gives no occasion."""

from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from workers.faults import report
from workers.faults.floor import Floor
from workers.faults.report import Outcome, Report
from workers.faults.scene import Scene
from workers.faults.scenes.all import SCENES

PLAYED = Outcome("S2", "played", 1.0, ends={"succeeded": 1})
PARTLY = Outcome("S1", "partly", 1.0, ends={"succeeded": 1}, left_out=("no undo is killed",))
NEVER = Outcome("S10", "never", 0.0, left_out=("no two steps run side by side",))


def a_report(*outcomes: Outcome) -> Report:
    return Report(7, "a plan", 4000, outcomes, "3a4b5c6d")


def test_what_could_not_be_done_with_this_plan_has_not_passed_and_fails_nothing() -> None:
    told = report.certificate(a_report(PLAYED, NEVER))
    assert (told["verdict"], told["failed"], told["skipped"], told["scenarios"]) == ("passed", [], ["S10"], 2)
    assert not NEVER.passed


def test_where_nothing_was_played_nothing_has_passed() -> None:
    made = a_report(NEVER)
    assert (made.verdict, made.passed) == ("not applicable", False)


def test_one_that_broke_is_no_less_broken_for_what_was_left_out() -> None:
    broken = Outcome("S10", "broken", 1.0, error="too_late: nothing came", left_out=("something",))
    assert not broken.skipped
    assert a_report(broken, NEVER).verdict == "failed"


def test_as_text() -> None:
    assert report.line(NEVER).startswith("S10  n/a")
    assert list(report.remarks(NEVER)) == ["     not applicable: no two steps run side by side"]
    assert report.line(PARTLY).startswith("S1   ok")
    assert list(report.remarks(PARTLY)) == ["     not applicable: no undo is killed"]
    assert "  skipped     S10, for which this plan gives no occasion" in list(report.text(a_report(PLAYED, NEVER)))


def test_as_json() -> None:
    told = report.as_json(a_report(PARTLY, NEVER))
    assert told["call"] == "3a4b5c6d"
    assert [(one["passed"], one["skipped"]) for one in told["scenarios"]] == [(True, False), (False, True)]
    assert told["scenarios"][0]["left_out"] == ("no undo is killed",)


def test_as_junit() -> None:
    suite = ET.fromstring(report.junit(a_report(PLAYED, PARTLY, NEVER)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "0", "1")
    tags = [[child.tag for child in case] for case in suite.iter("testcase")]
    assert tags == [[], ["system-out"], ["skipped"]]
    (skipped,) = suite.iter("skipped")
    assert skipped.get("message") == "not applicable: no two steps run side by side"


def lonely(limit_ms: int) -> Floor:
    """Where the plan has one step."""
    step = SimpleNamespace(id="slow", needs=(), effect="keyed", action="faults.price", limit_ms=limit_ms, index=0)
    return cast("Floor", SimpleNamespace(steps=[step], settings=SimpleNamespace(lease_s=3.0)))


@pytest.mark.parametrize(("name", "why"), [("S4", "no step may last 6.6 s"), ("S10", "no two steps run side by side")])
def test_a_plan_that_gives_no_occasion_is_played_no_run_of(name: str, why: str) -> None:
    scene: Any = Scene(name, 7)
    SCENES[name](lonely(2000), scene)
    assert scene.runs == []
    assert scene.left_out[0].startswith(why)
