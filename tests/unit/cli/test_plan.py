import io
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.command import run
from tests.support.plans import command, file, plan_text
from workers.cli import mandor

EMPTY = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # SHA-256 of {}


def validate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(mandor, ["plan", "validate", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(command(id="list"), file()))
    return path


def test_an_accepted_plan_shows_its_steps_with_defaults(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = validate(capsys, str(plan), "--no-context")
    assert (code, answer["verdict"], answer["errors"]) == (0, "accept", [])
    assert len(answer["plan_hash"]) == 64
    assert [(step["id"], step["needs"]) for step in answer["steps"]] == [("list", []), ("s1", ["list"])]
    assert answer["steps"][0]["params"]["timeout_ms"] == 5000


def test_the_whole_answer_is_judged_as_the_door_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = f"Here you are:\n```json\n{plan_text(file())}\n```"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw.encode())))
    code, answer = validate(capsys, "-", "--no-context")
    assert (code, answer["verdict"]) == (0, "accept_after_extraction")


def test_a_refusal_names_paths_and_answers_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(file(content=3), {"action": "frob", "params": {}}))
    code, answer = validate(capsys, str(path), "--no-context")
    assert (code, answer["verdict"], answer["plan_hash"]) == (1, "reject", None)
    assert [error["path"] for error in answer["errors"]] == ["steps.0.params.content", "steps.1.action"]


def test_a_plan_made_for_another_context_is_refused(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = validate(capsys, str(plan), "--context", '{"order": 7}')
    assert (code, answer["errors"][0]["path"]) == (1, "context_hash")


def test_no_context_given_means_the_empty_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(file(), context_hash=EMPTY))
    assert validate(capsys, str(path))[0] == 0


def test_a_policy_may_narrow_what_is_allowed(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"actions": ["create_file"]}')
    code, answer = validate(capsys, str(plan), "--no-context", "--policy", str(policy))
    assert (code, answer["errors"][0]["kind"]) == (1, "policy")


def test_a_context_that_is_no_object_is_a_usage_error(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = validate(capsys, str(plan), "--context", "[1]")
    assert (code, answer["error"]["kind"]) == (2, "usage")


def test_for_people_the_verdict_is_a_table(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["plan", "validate", str(plan), "--no-context"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("verdict    accept\n")
    assert "1  s1    create_file  list" in text


def test_actions_and_their_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["actions", "list", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    effects = {one["name"]: one["effect"] for one in answer["actions"]}
    assert effects["create_file"] == "idempotent"
    assert run(mandor, ["actions", "schema", "create_file"]) == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == {"path", "content"}
    assert run(mandor, ["actions", "schema", "--json"]) == 0
    assert "steps" in json.loads(capsys.readouterr().out)["properties"]
    assert run(mandor, ["actions", "schema", "frob", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "not_found"


@pytest.mark.parametrize("words", [["validate", "--no-context"], ["show"], ["graph"], ["dry-run", "--no-context"]])
def test_an_action_that_is_not_here_says_where_actions_come_from(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_text({"action": "frob", "params": {}}, {"action": "frob", "params": {}}))
    assert run(mandor, ["plan", *words, str(path)]) == 1
    told = "".join(capsys.readouterr())
    assert "MANDOR_ACTIONS names the modules" in told
    assert "(and 1 more)" not in told  # as if it were one more action
