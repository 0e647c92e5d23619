"""`mandor dlq` where it is cut short: what is said of it, and what stays of what a person has written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import submission, triage
from orchestrator.cli.command import run
from orchestrator.decisions import Desk
from orchestrator.errors import StoreUnavailable
from tests.support.installation import Installation, installation
from tests.support.letters import refused_submission
from tests.support.servers import Server
from workers.cli import mandor

WRONG = {"goal": "g"}
RIGHT = {**WRONG, "planner": "orders.fulfil"}


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
    assert "was dropped by bob" in says(capsys, "edit", letter_id, code=1)["error"]["message"]
    assert drafts(ours) == []


def test_a_draft_goes_once_it_is_decided_about_though_the_store_is_away(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("gone")

    letter_id = refused_submission(ours, WRONG)
    writing(monkeypatch, RIGHT)
    monkeypatch.setattr(submission, "submit", away)
    hint = says(capsys, "edit", letter_id, code=3)["error"]["hint"]
    assert ("the decision is kept" in hint, "None" in hint) == (True, False)
    assert drafts(ours) == []


def test_a_draft_goes_when_somebody_else_has_dealt_with_its_letter(
    ours: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_id = refused_submission(ours, WRONG)
    writing(monkeypatch, {"goal": 3})
    says(capsys, "edit", letter_id, code=1)
    drop(ours, letter_id)
    says(capsys, "edit", letter_id, code=1)
    assert drafts(ours) == []
