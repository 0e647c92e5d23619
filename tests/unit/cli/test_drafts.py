"""What a person finds in the editor, and what is left of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import DecisionRefused
from schemas.dead_letter import DeadLetter, DeadLetterKind
from tests.support.ledgers import letter_named
from workers.cli.drafts import Draft, remarks, without_remarks


def letter(kind: DeadLetterKind = DeadLetterKind.PLAN, **content: Any) -> DeadLetter:
    return letter_named("a:b").model_copy(update={"kind": kind, "content": content})


def answered(raw: str, *errors: dict[str, Any]) -> DeadLetter:
    return letter(attempts=[{"raw": "earlier", "errors": []}, {"raw": raw, "errors": list(errors)}])


def editing(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> list[str]:
    """An editor that changes one text; answers what it was shown."""
    seen: list[str] = []

    def edit(*, filename: str) -> None:
        seen.append(Path(filename).read_text())
        Path(filename).write_text(seen[-1].replace(old, new))

    monkeypatch.setattr("workers.cli.drafts.click.edit", edit)
    return seen


def test_an_answer_is_shown_below_its_faults_and_taken_without_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = editing(monkeypatch, "3", "4")
    draft = Draft(tmp_path, answered('{"a":3}', {"path": "a", "message": "not \x1b[2Ja text"}))
    assert json.loads(draft.edited() or "") == {"a": 4}
    assert "#   a: not \\x1b[2Ja text\n" in seen[0]
    assert draft.path.stat().st_mode & 0o777 == 0o600
    assert draft.path.parent.stat().st_mode & 0o777 == 0o700


def test_what_was_written_is_there_again_until_it_has_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "3", "4")
    Draft(tmp_path, answered('{"a":3}')).edited()
    again = Draft(tmp_path, answered('{"a":3}'))
    assert json.loads(again.edited() or "") == {"a": 4}
    again.forget()
    assert not again.path.exists()


def test_who_changes_nothing_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "absent", "x")
    draft = Draft(tmp_path, answered("no JSON at all"))
    assert draft.edited() is None
    assert not draft.path.exists()


def test_a_submission_is_edited_as_it_was_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "planer", "planner")
    draft = Draft(tmp_path, letter(DeadLetterKind.SUBMISSION, submission={"planer": "p"}))
    assert json.loads(draft.edited() or "") == {"planner": "p"}


def test_a_letter_without_an_answer_has_nothing_to_edit(tmp_path: Path) -> None:
    with pytest.raises(DecisionRefused, match="no answer"):
        Draft(tmp_path, letter(attempts=[])).edited()


def test_only_the_lines_at_the_head_are_remarks() -> None:
    assert without_remarks('# one\n#two\n{"a":\n# three\n1}') == '{"a":\n# three\n1}'
    assert without_remarks("# all of it") == ""
    assert "refused twice" in remarks(letter(attempts=[]))[1]
