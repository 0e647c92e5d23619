"""What a person finds in the editor, and what is left of it."""

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import DecisionRefused
from schemas.dead_letter import DeadLetter, DeadLetterKind
from tests.support.ledgers import letter_named
from workers.cli.drafts import Draft, may_be_edited, prune, refused_text, remarks, without_remarks


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


def test_an_editor_that_fails_makes_no_edit_of_what_was_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for raw in ('{"a":3}', "# a plan\n{"):
        draft = Draft(tmp_path, answered(raw))
        monkeypatch.setenv("VISUAL", "false")
        with pytest.raises(DecisionRefused, match="Editing failed"):
            draft.edited()
        assert draft.kept() is None
        monkeypatch.setenv("VISUAL", "true")
        assert draft.edited() is None
        assert not draft.path.exists()


def test_an_editor_that_takes_the_file_away_makes_no_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    draft = Draft(tmp_path, answered('{"a":3}'))
    monkeypatch.setattr("workers.cli.drafts.click.edit", lambda filename: Path(filename).unlink())
    assert (draft.edited(), draft.kept()) == (None, None)


@pytest.mark.parametrize("end", [Path.unlink, lambda path: path.write_text("")], ids=["taken away", "emptied"])
def test_what_was_written_before_outlives_an_editor_that_empties_it(
    end: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editing(monkeypatch, "3", "4")
    draft = Draft(tmp_path, answered('{"a":3}'))
    written = draft.edited()
    monkeypatch.setattr("workers.cli.drafts.click.edit", lambda filename: end(Path(filename)))
    assert (draft.edited(), draft.kept()) == (None, draft.path)
    assert written
    assert written in draft.path.read_text()


def test_a_draft_that_is_not_utf_8_is_shown_again_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    draft = Draft(tmp_path, answered('{"a":3}'))
    monkeypatch.setattr("workers.cli.drafts.click.edit", lambda filename: Path(filename).write_bytes(b'{"a":"\xe9"}'))
    with pytest.raises(DecisionRefused, match="not UTF-8"):
        draft.edited()
    assert draft.kept() == draft.path
    seen: list[bytes] = []

    def mends(*, filename: str) -> None:
        seen.append(Path(filename).read_bytes())
        Path(filename).write_text('{"a":"e"}')

    monkeypatch.setattr("workers.cli.drafts.click.edit", mends)
    assert draft.edited() == '{"a":"e"}'
    assert b'{"a":"\xe9"}' in seen[0]


def test_what_an_editor_leaves_beside_it_goes_with_a_draft(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "3", "4")
    draft = Draft(tmp_path, answered('{"a":3}'))
    draft.edited()
    name, folder = draft.path.name, draft.path.parent
    for beside in (f"{name}~", f".{name}.swp", f"#{name}#", f".#{name}", "letter-other.json"):
        (folder / beside).touch()
    draft.forget()
    assert {path.name for path in folder.iterdir()} == {"letter-other.json", draft.path.with_suffix(".lock").name}


def test_a_full_disk_takes_nothing_of_what_was_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "3", "4")
    draft = Draft(tmp_path, answered('{"a":3}'))
    draft.edited()
    written = draft.path.read_text()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            draft.edited()
    assert draft.path.read_text() == written


def test_one_editor_at_a_time_has_a_letter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = Draft(tmp_path, answered('{"a":3}'))

    def meanwhile(*, filename: str) -> None:
        before = Path(filename).read_text()
        with pytest.raises(DecisionRefused, match=f"process {os.getpid()} .* editor"):
            other.edited()
        other.forget()
        Path(filename).write_text(before.replace("3", "4"))

    monkeypatch.setattr("workers.cli.drafts.click.edit", meanwhile)
    assert json.loads(Draft(tmp_path, answered('{"a":3}')).edited() or "") == {"a": 4}
    other.forget()
    assert not other.path.exists()


def test_what_a_reader_would_not_see_is_shown_and_means_the_same() -> None:
    for unseen in ("\ud800", "\u202e", "\u200b"):
        escape = f"\\u{ord(unseen):04x}"
        submission = refused_text(letter(DeadLetterKind.SUBMISSION, submission={"goal": unseen}))
        prose = refused_text(answered(f'Here it is:\n\t{{"goal": "{unseen}"}}'))
        plan = refused_text(answered(json.dumps({"goal": unseen}, ensure_ascii=unseen == "\ud800")))
        for text in (submission, prose, plan):
            assert unseen not in text
            assert escape in text
        assert json.loads(submission) == json.loads(plan) == {"goal": unseen}
        assert "\n\t{" in prose


def test_drafts_that_nobody_opens_any_more_are_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "3", "4")
    draft = Draft(tmp_path, answered('{"a":3}'))
    draft.edited()
    prune(draft.path.parent)
    assert draft.path.exists()
    for path in draft.path.parent.iterdir():
        os.utime(path, (time.time() - 31 * 86_400,) * 2)
    prune(draft.path.parent)
    assert list(draft.path.parent.iterdir()) == []


def test_a_submission_is_edited_as_it_was_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    editing(monkeypatch, "planer", "planner")
    draft = Draft(tmp_path, letter(DeadLetterKind.SUBMISSION, submission={"planer": "p"}))
    assert json.loads(draft.edited() or "") == {"planner": "p"}


def test_a_letter_without_an_answer_has_nothing_to_edit(tmp_path: Path) -> None:
    with pytest.raises(DecisionRefused, match="no answer"):
        Draft(tmp_path, letter(attempts=[])).edited()


def test_what_nobody_has_written_is_not_edited() -> None:
    may_be_edited(letter(attempts=[]))
    with pytest.raises(DecisionRefused) as caught:
        may_be_edited(letter(DeadLetterKind.STEP))
    assert (caught.value.message, "dlq replay" in str(caught.value.hint)) == (
        "a letter of kind step has nothing to edit",
        True,
    )


def test_an_undo_is_not_promised_to_be_begun_again() -> None:
    """One that may have happened is not: `dlq show` and `dlq replay` say which it is."""
    with pytest.raises(DecisionRefused) as caught:
        may_be_edited(letter(DeadLetterKind.UNDO))
    assert caught.value.hint == "see `mandor dlq show a:b`"


def test_only_the_lines_at_the_head_are_remarks() -> None:
    assert without_remarks('# one\n#two\n{"a":\n# three\n1}') == '{"a":\n# three\n1}'
    assert without_remarks("# all of it") == ""
    assert "refused twice" in remarks(letter(attempts=[]))[1]
