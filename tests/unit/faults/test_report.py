"""Verdict, certificate, and the three ways of printing them."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.unit.faults.facts import RUN, act, good, with_acts, with_step
from workers.faults import report
from workers.faults.orders import Order
from workers.faults.report import Outcome, Report, judge
from workers.faults.scene import Fault, Scene, Wanted


def scene(**changes: object) -> Scene:
    made = Scene("S1", 7)
    made.runs.append(Wanted(RUN, {}, **changes))  # type: ignore[arg-type]
    return made


def harmed(fault: Fault, **changes: object) -> Scene:
    made = scene(**changes)
    made.faults.append(fault)
    return made


def a_report(*outcomes: Outcome) -> Report:
    return Report(7, "the kit's own example", 4000, outcomes)


def passed() -> Outcome:
    return judge(scene(), "somebody is killed", [good()], 1.25)


def failed() -> Outcome:
    run = replace(with_acts(good(), act("acted", "book", 90)), status="running")
    return judge(scene(), "somebody is killed", [run], 1.0)


def test_a_run_in_which_everything_holds_passes() -> None:
    outcome = passed()
    assert outcome.passed
    assert outcome.ends == {"succeeded": 1}
    assert outcome.effects == {"pure": 1, "idempotent": 1, "transactional": 1, "keyed": 1, "once": 1}


def test_a_run_that_gets_elsewhere_is_a_loss() -> None:
    (violation,) = judge(scene(ends=frozenset({"compensated"})), "", [good()], 1.0).violations
    assert (violation.invariant, violation.sort, violation.text) == ("end", "loss", "it is succeeded, not compensated")


def test_a_doubt_about_a_once_step_excuses_its_run_and_no_other_step_does() -> None:
    for step_id, passes in (("send", True), ("charge", False)):
        run = replace(good(undone=True), letters={step_id: ("in_doubt",)}, reason=f"in_doubt:{step_id}")
        assert judge(harmed(Fault("child killed", 0, RUN, step_id)), "", [run], 1.0).passed is passes


@pytest.mark.parametrize(
    ("fault", "passes"),
    [
        (Fault("child killed", 0, RUN, "send"), True),
        (Fault("FLUSHALL", 0, RUN), True),
        (Fault("worker killed", 0, ""), True),
        (Fault("child killed", 0, RUN, "charge"), False),
        (Fault("child killed", 0, "another run", "send"), False),
        (Fault("copies", 0, RUN, "send", interrupts=False), False),
    ],
)
def test_a_doubt_excuses_no_run_that_nobody_has_harmed_there(fault: Fault, passes: bool) -> None:
    run = replace(good(undone=True), letters={"send": ("in_doubt",)}, reason="in_doubt:send")
    assert judge(harmed(fault), "", [run], 1.0).passed is passes


@pytest.mark.parametrize(
    "reason", ["cancelled", "deadline", "step_failed:charge", "in_doubt:charge", "", "in_doubt:gone"]
)
def test_a_doubt_excuses_no_run_that_ended_for_another_reason(reason: str) -> None:
    run = replace(good(undone=True), letters={"send": ("in_doubt",)}, reason=reason)
    made = harmed(Fault("child killed", 0, RUN, "send"))
    assert [one.invariant for one in judge(made, "", [run], 1.0).violations] == ["end"]


def test_nor_one_that_ended_as_no_doubt_ends_it() -> None:
    run = replace(good(), letters={"send": ("in_doubt",)}, reason="in_doubt:send")
    made = harmed(Fault("child killed", 0, RUN, "send"), ends=frozenset({"cancelled"}))
    assert not judge(made, "", [run], 1.0).passed


@pytest.mark.parametrize(("reason", "named"), [("", ["harm not done"]), ("in_doubt:send", [])])
def test_harm_that_was_not_done_is_a_failure_unless_its_run_ended_before(reason: str, named: list[str]) -> None:
    made = harmed(Fault("child killed", 0, RUN, "send"), ends=frozenset({"succeeded", "compensated"}))
    made.missed.append(Order("a", RUN, "charge", "acted", "hold"))
    run = replace(good(undone=True), letters={"send": ("in_doubt",)}, reason=reason)
    outcome = judge(made, "", [run], 1.0)
    assert [one.invariant for one in outcome.violations] == named
    told = "     harm not done: nobody came to `hold` at acted of charge (" + RUN + ")"
    assert (told in list(report.wrong(outcome))) is bool(named)


def test_nobody_comes_to_the_end_of_an_undo_that_is_given_up() -> None:
    for status, found in (("compensation_failed", 0), ("compensated", 1)):
        made = scene(ends=frozenset({"compensated"}))
        made.missed.append(Order("a", RUN, "charge", "undone", "hold"))
        run = replace(with_step(good(undone=True), "charge", status=status), letters={"charge": ("undo",)})
        assert len(judge(made, "", [run], 1.0).violations) == found


def test_a_step_that_has_one_attempt_excuses_its_run() -> None:
    run = replace(good(undone=True), letters={"charge": ("retry_exhausted",)}, reason="step_failed:charge")
    made = harmed(Fault("child killed", 0, RUN, "charge"))
    assert not judge(made, "", [run], 1.0).passed
    assert judge(made, "", [with_step(run, "charge", max_attempts=1)], 1.0).passed


def test_what_a_scenario_expects_beyond_the_invariants_is_judged() -> None:
    made = scene()
    made.expect(True, "this holds")
    made.expect(False, "this does not")
    outcome = judge(made, "", [good()], 1.0)
    assert [(one.invariant, one.text) for one in outcome.violations] == [("S1", "this does not")]


def test_recovery_lasts_until_what_was_interrupted_moves() -> None:
    made = scene()
    moved = next(event.at for event in good().events if "send=running" in event.fields["steps"])
    made.faults += [Fault("child killed", moved - 1, RUN, "send"), Fault("flushed", 0, RUN), Fault("late", 9999, RUN)]
    made.faults.append(Fault("copies", moved - 1, RUN, "send", interrupts=False))
    outcome = judge(made, "", [good()], 1.0)
    assert outcome.faults == {"child killed": 1, "flushed": 1, "late": 1, "copies": 1}
    assert [(one.fault, one.ms) for one in outcome.recoveries] == [("child killed", 1), ("flushed", 1001)]
    said = report.certificate(a_report(outcome))["recovery_ms"]
    assert said == {"count": 2, "median": 501, "slowest": 1001, "slowest_fault": "flushed"}
    assert "  recovery    median 0.5 s of 2; slowest 1.0 s, flushed" in list(report.text(a_report(outcome)))


@pytest.mark.parametrize(("ms", "found"), [(8000, 0), (8001, 1), (50_000, 1)])
def test_a_recovery_that_takes_too_long_is_found(ms: int, found: int) -> None:
    moved = next(event.at for event in good().events if "send=running" in event.fields["steps"])
    made = harmed(Fault("child killed", moved - ms, RUN, "send"))
    wrong = judge(made, "", [good()], 1.0, bound_ms=4000).violations
    assert [(one.invariant, one.sort) for one in wrong] == [("recovery", "stuck")] * found
    assert judge(made, "", [with_step(good(), "send", has_probe=True)], 1.0, bound_ms=4000).passed
    made.spare_s = 50
    assert judge(made, "", [good()], 1.0, bound_ms=4000).passed
    assert judge(harmed(Fault("copies", 0, RUN, "send", interrupts=False)), "", [good()], 1.0, bound_ms=1).passed


def test_the_certificate_counts() -> None:
    said = report.certificate(a_report(passed(), failed()))
    assert (said["verdict"], said["failed"], said["scenarios"]) == ("failed", ["S1"], 2)
    assert (said["duplicates"], said["losses"], said["stuck"], said["other"]) == (1, 1, 1, 0)
    assert said["runs"] == {"running": 1, "succeeded": 1}
    assert said["recovery_ms"] == {"count": 0, "median": None, "slowest": None, "slowest_fault": None}


def test_as_text() -> None:
    assert "\n".join(report.text(a_report(passed()))).startswith("certificate of the kit's own example: PASSED\n")
    told = [report.line(failed()), *report.wrong(failed()), *report.text(a_report(failed()))]
    assert told[0].startswith("S1   BROKEN")
    assert f"     I5: book (do.book, transactional) was applied 2 times ({RUN})" in told
    assert "  duplicates  1" in told


def test_what_could_not_be_played_is_a_failure() -> None:
    broken = a_report(passed(), Outcome("S2", "no", 1.0, error="too_late: nothing came"))
    assert not broken.passed
    assert report.line(broken.outcomes[1]).startswith("S2   ERROR")
    assert report.certificate(broken)["failed"] == ["S2"]


def test_as_junit() -> None:
    made = a_report(passed(), failed(), Outcome("S2", "no", 1.0, error="too_late: nothing came"))
    suite = ET.fromstring(report.junit(made))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert [one.get("value") for one in suite.iter("property")] == ["7", "the kit's own example", ""]
    assert [[child.tag for child in case] for case in suite.iter("testcase")] == [[], ["failure"], ["error"]]
    failure = next(suite.iter("failure"))
    assert "applied 2 times" in (failure.text or "")


def test_as_json() -> None:
    told = report.as_json(a_report(failed()))
    assert (told["seed"], told["scenarios"][0]["passed"]) == (7, False)
    assert told["scenarios"][0]["violations"][0] == {
        "invariant": "I5",
        "sort": "duplicate",
        "run_id": RUN,
        "text": "book (do.book, transactional) was applied 2 times",
    }
