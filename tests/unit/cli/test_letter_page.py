"""How a letter looks at a terminal."""

from typing import Any

import pytest

from orchestrator import outcomes
from orchestrator.cli import letter_page, letters


def shown(capsys: pytest.CaptureFixture[str], **content: Any) -> str:
    told = {"id": "l", "kind": "step", "status": "open", "created_at": 0, "run_id": "r", "step_id": "a", "reason": "x"}
    letter_page.print_letter({**told, **content, "decisions": []})
    return capsys.readouterr().out


def test_what_happened_to_a_step_is_told_event_by_event(capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        {"event": event, "at": 86_400_000, "attempt": "1", "worker_id": "w:1"}
        for event in ("step.claimed", "step.lost")
    ]
    text = shown(capsys, attempts=events)
    assert ("step.claimed" in text, "1970-01-0" in text, "attempt 2" in text) == (True, True, False)


def test_a_very_long_answer_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, attempts=[{"raw": "a" * 100_000}])
    assert len(text) < 21_000
    assert "80000 more characters: --json has them" in text


@pytest.mark.parametrize(
    ("kept", "told"),
    [([{"raw": "a"}], {"attempts": [{"raw": "a"}]}), (3, {"attempts": [], "attempts_made": 3})],
)
def test_attempts_are_a_list_in_every_letter(kept: Any, told: dict[str, Any]) -> None:
    assert letters._attempts(kept) == told


def test_an_undo_in_doubt_is_not_sent_to_where_steps_are_resolved() -> None:
    said = outcomes.of_letter("refused:undo_in_doubt:s0", "r", "s0")
    assert ("undo of step s0" in said, "run resolve" in said) == (True, False)
