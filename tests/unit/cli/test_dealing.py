"""What came of decisions, in words."""

from orchestrator.cli import dealing, decide
from orchestrator.decisions import Decided
from orchestrator.triage import Dealt


def dealt(outcome: str) -> Dealt:
    return Dealt("l", "plan", "replay", "ann", 0, made=True, outcome=outcome, run_id="r", step_id=None)


def decided(outcome: str) -> Decided:
    return Decided("d", "r", "cancel", None, 1, outcome)


def test_a_stored_outcome_is_no_template() -> None:
    refused = dealing.sentence(dealt("refused:goal: {not} known {0}"))
    assert refused == "it could not be done, and the letter is open: goal: {not} known {0}"
    assert dealing.sentence(dealt("what {is} this:{}")) == "what {is} this:{}"
    assert dealing.sentence(dealt("refused:not_due:{}")).endswith("nothing to decide: {}")
    assert dealing.sentence(dealt("submitted:r")) == "submitted as run r"


def test_what_came_of_a_decision_about_a_run_is_no_template() -> None:
    assert decide.sentence(decided("what {is} this:{}")) == "what {is} this:{}"
    assert decide.sentence(decided("too_late:{}")) == "too late: {}"
