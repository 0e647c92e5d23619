"""What came of decisions, in words."""

import pytest

from orchestrator import outcomes
from orchestrator.cli import dealing, letter_page, output
from orchestrator.triage import Dealt


def dealt(outcome: str) -> Dealt:
    return Dealt("l", "plan", "replay", "ann", 0, made=True, outcome=outcome, run_id="r", step_id=None)


def test_a_stored_outcome_is_no_template() -> None:
    refused = dealing.sentence(dealt("refused:goal: {not} known {0}"))
    assert refused == "it could not be done, and the letter is open: goal: {not} known {0}"
    assert dealing.sentence(dealt("what {is} this:{}")) == "what {is} this:{}"
    assert dealing.sentence(dealt("refused:not_due:{}")).endswith("nothing to decide: {}")
    assert dealing.sentence(dealt("submitted:r")) == "submitted as run r"


def test_what_came_of_a_decision_about_a_run_is_no_template() -> None:
    assert outcomes.of_run("what {is} this:{}") == "what {is} this:{}"
    assert outcomes.of_run("too_late:{}") == "too late: {}"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("undoing:2", "step s0 is undone again, in generation 2 of the run"),
        ("refused:not_due:x", "it could not be done: nothing to decide: x"),
        ("what {is} this:{}", "what {is} this:{}"),
        (None, "not carried out yet"),
    ],
)
def test_a_letter_tells_in_words_what_came_of_what_was_decided(
    outcome: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    decision = {"decision": "replay", "by": "ann", "reason": None, "at": 0, "outcome": outcome}
    letter_page.print_letter({"created_at": 0, "run_id": "r", "step_id": "s0", "decisions": [decision]})
    assert f"replay by ann at {output.when(0)}: {said}\n" in capsys.readouterr().out
