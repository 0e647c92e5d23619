"""`mandor dlq` where it is cut short: what is said of it, and what stays of what a person has written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from orchestrator import submission, triage
from orchestrator.cli.command import run
from orchestrator.decisions import Desk
from orchestrator.errors import StoreUnavailable, SubmissionRefused
from orchestrator.supervisors import apply_decisions
from tests.support.installation import Installation, installation
from tests.support.letters import refused_submission
from tests.support.servers import Server
from workers.cli import mandor

WRONG = {"goal": "g"}
RIGHT = {**WRONG, "planner": "llm"}


@pytest.fixture
def ours(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[Installation]:
    prefix = f"{namespace}."
    with installation(redis_server.url, tmp_path, namespace=namespace, queue_prefix=prefix, shards=1) as made:
        yield made


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run(mandor, ["dlq", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def drop(ours: Installation, letter_id: str) -> None:
    triage.drop(Desk(ours.app, ours.store, ours.ledger), letter_id, "bob", "a test of ours")


# ---- many letters


def test_whoever_breaks_off_is_told_how_far_it_came(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        refused_submission(ours, WRONG, f"task-{number}")
    drop_one, asked = triage.drop, list[str]()
    ends: list[type[BaseException] | BaseException] = [KeyboardInterrupt, StoreUnavailable("no answer")]

    def breaking(desk: Desk, letter_id: str, *rest: str) -> Any:
        asked.append(letter_id)
        if len(asked) % 2 == 0:
            raise ends.pop()
        return drop_one(desk, letter_id, *rest)

    monkeypatch.setattr(triage, "drop", breaking)
    all_of_them = ("drop", "--kind", "submission", "--yes", "--reason", "tests of ours")
    first = says(capsys, *all_of_them, code=3)
    assert "1 of 3 were decided about" in first["error"]["hint"]
    assert [row["letter_id"] for row in first["letters"]] == asked[:1]
    assert "1 of 2 were decided about" in says(capsys, *all_of_them, code=130)["error"]["hint"]


def test_many_are_dealt_with_as_they_were_given_up(ours: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        refused_submission(ours, WRONG, f"task-{number}")
    newest_first = [letter["id"] for letter in says(capsys, "list")["dead_letters"]]
    foreseen = says(capsys, "drop", "--kind", "submission", "--dry-run")["letters"]
    assert [one["letter_id"] for one in foreseen] == newest_first[::-1]


def test_a_page_behind_no_letter_is_none(ours: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    letter_id = refused_submission(ours, WRONG)
    assert says(capsys, "list", "--before", letter_id)["dead_letters"] == []
    wrong = says(capsys, "list", "--before", "nonsense", code=1)["error"]
    assert (wrong["kind"], wrong["path"]) == ("not_found", "before")


# ---- one letter in an editor


def drafts(ours: Installation) -> list[Path]:
    return sorted(ours.settings.home.glob("drafts/*.json"))


def writing(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], then: Callable[[], None] = lambda: None) -> None:
    """An editor in which this is written; then: what others do meanwhile."""

    def edit(*, filename: str) -> None:
        Path(filename).write_text(json.dumps(fields))
        then()

    monkeypatch.setattr("workers.cli.drafts.click.edit", edit)


def test_what_was_written_is_kept_while_its_letter_is_open(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_id = refused_submission(ours, WRONG)
    writing(monkeypatch, {"goal": 3})
    kept = says(capsys, "edit", letter_id, code=1)["kept"]
    assert [str(path) for path in drafts(ours)] == [kept]
    writing(monkeypatch, RIGHT, lambda: drop(ours, letter_id))
    refused = says(capsys, "edit", letter_id, code=1)["error"]
    assert "was dropped by bob" in refused["message"]
    assert f"what you wrote is kept in {kept}" in refused["hint"]
    assert json.loads(Path(kept).read_text()) == RIGHT


def test_a_draft_is_kept_until_what_it_says_has_come_about(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away, and by the time it is back the settings have changed: the letter is open again."""

    def away(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    def refused(*_: Any) -> Any:
        raise SubmissionRefused("callback: nobody may be told there")

    letter_id = refused_submission(ours, WRONG)
    writing(monkeypatch, RIGHT)
    with monkeypatch.context() as patched:
        patched.setattr(submission, "submit", away)
        hint = says(capsys, "edit", letter_id, code=3)["error"]["hint"]
    (draft,) = drafts(ours)
    assert ("the decision is kept" in hint, f"kept in {draft}" in hint, "None" in hint) == (True, True, False)
    with monkeypatch.context() as patched:
        patched.setattr(submission, "submit", refused)
        assert apply_decisions.run_once(ours.app, ours.store, ours.ledger).moved == 1
    monkeypatch.setattr("workers.cli.drafts.click.edit", lambda filename: Path(filename).touch())
    assert says(capsys, "edit", letter_id)["carried_out"]
    assert drafts(ours) == []


def test_a_draft_is_kept_where_its_decision_was_refused_at_once(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise SubmissionRefused("callback: nobody may be told there")

    letter_id = refused_submission(ours, WRONG)
    writing(monkeypatch, RIGHT)
    with monkeypatch.context() as patched:
        patched.setattr(submission, "submit", refused)
        assert run(mandor, ["dlq", "edit", letter_id]) == 1
    (draft,) = drafts(ours)
    assert f"kept in {draft}" in capsys.readouterr().err


def test_a_text_is_kept_when_somebody_else_has_dealt_with_its_letter(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_id = refused_submission(ours, WRONG)
    writing(monkeypatch, {"goal": 3})
    kept = says(capsys, "edit", letter_id, code=1)["kept"]
    drop(ours, letter_id)
    assert f"kept in {kept}" in says(capsys, "edit", letter_id, code=1)["error"]["hint"]
    assert json.loads(Path(kept).read_text()) == {"goal": 3}


def test_leaving_the_editor_without_saving_is_no_edit(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an editor that then failed has saved, and a person may have thought better of."""
    letter_id = refused_submission(ours, WRONG)

    def fails(*, filename: str) -> None:
        Path(filename).write_text(json.dumps(RIGHT))
        raise click.ClickException("Editing failed")

    monkeypatch.setattr("workers.cli.drafts.click.edit", fails)
    assert run(mandor, ["dlq", "edit", letter_id]) != 0
    capsys.readouterr()
    (draft,) = drafts(ours)
    monkeypatch.setattr("workers.cli.drafts.click.edit", lambda filename: None)
    refused = says(capsys, "edit", letter_id, code=1)["error"]
    assert refused["message"] == "nothing was changed, so nothing is done"
    assert f"`mandor dlq edit {letter_id} --file {draft}`" in refused["hint"]
    assert says(capsys, "edit", letter_id, "--file", str(draft))["carried_out"]
    assert drafts(ours) == []
