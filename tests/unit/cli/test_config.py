import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator import policies
from orchestrator.cli import inputs
from orchestrator.cli.command import run
from orchestrator.settings import Settings
from schemas.policy import policy_hash
from workers.cli import mandor


def config(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(mandor, ["config", "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_every_setting_is_shown_with_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_LEASE_S", "30")
    rows = {row["name"]: row for row in config(capsys)["settings"]}
    assert len(rows) == len(Settings.model_fields)
    assert (rows["MANDOR_LEASE_S"]["value"], rows["MANDOR_LEASE_S"]["source"]) == (30, "environment")
    assert rows["MANDOR_SWEEP_S"]["source"] == "default"


def test_an_empty_url_shows_what_it_stands_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://host/3")
    rows = {row["name"]: row for row in config(capsys)["settings"]}
    assert rows["MANDOR_BROKER_URL"]["value"] == "redis://host/3"
    assert str(rows["MANDOR_LEDGER_URL"]["value"]).startswith("sqlite:///")


def test_passwords_are_hidden(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MANDOR_REDIS_URL", "redis://user:hunter2@host/0")
    monkeypatch.setenv("MANDOR_LEDGER_URL", "postgresql://user:hunter2@host/db?password=hunter2&sslmode=require")
    run(mandor, ["config"])
    text = capsys.readouterr().out
    assert "redis://user:***@host/0" in text
    assert "hunter2" not in text


def test_a_mistyped_name_is_reported_with_a_guess(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_LEASE", "30")
    assert config(capsys)["unknown"] == [{"name": "MANDOR_LEASE", "hint": "did you mean MANDOR_LEASE_S?"}]
    run(mandor, ["config"])
    assert "no setting is called MANDOR_LEASE; did you mean MANDOR_LEASE_S?" in capsys.readouterr().err


def test_wrong_settings_are_shown_too_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_SWEEP_S", "soon")
    assert run(mandor, ["config"]) == 2
    captured = capsys.readouterr()
    assert "soon" in captured.out
    assert "error: MANDOR_SWEEP_S" in captured.err
    assert run(mandor, ["config", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["path"] == "MANDOR_SWEEP_S"


def check(capsys: pytest.CaptureFixture[str], code: int = 1) -> dict[str, Any]:
    assert run(mandor, ["config", "check", "--json"]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.fixture
def policy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "policy.json"
    path.write_text('{"max_steps": 7, "limits": {"timeout_s": 30}}')
    monkeypatch.setenv("MANDOR_POLICY_FILE", str(path))
    return path


def test_what_a_file_narrows_has_the_file_as_its_source(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in config(capsys)["settings"]}
    for name, value in (("MANDOR_MAX_STEPS", 7), ("MANDOR_TIMEOUT_S", 30)):
        assert (rows[name]["value"], rows[name]["source"], rows[name]["file"]) == (value, "file", str(policy_file))
    assert rows["MANDOR_POLICY_FILE"]["source"] == "environment"
    assert rows["MANDOR_ATTEMPTS"]["source"] == "default"


def test_the_home_s_own_server_is_found_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "server.conf").write_text("port 4711\nrequirepass hunter2\n")
    monkeypatch.setenv("MANDOR_HOME", str(tmp_path))
    rows = {row["name"]: row for row in config(capsys)["settings"]}
    assert rows["MANDOR_REDIS_URL"]["file"] == str(tmp_path / "server" / "server.conf")
    assert rows["MANDOR_REDIS_URL"]["value"] == "redis://:***@127.0.0.1:4711/0"


def test_nothing_wrong_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, 0) == {"problems": [], "settings": []}
    assert run(mandor, ["config", "check"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_all_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"LEASE": "3", "SWEEP_S": "20", "TIMEOUT_S": "7200"}.items():
        monkeypatch.setenv(f"MANDOR_{name}", value)
    found = {problem["path"]: problem for problem in check(capsys)["problems"]}
    assert set(found) == {"MANDOR_LEASE", "MANDOR_SWEEP_S", "MANDOR_VISIBILITY_TIMEOUT_S", "MANDOR_TIMEOUT_S"}
    assert found["MANDOR_LEASE"]["hint"] == "did you mean MANDOR_LEASE_S?"
    assert "MANDOR_SWEEP_S=20, MANDOR_LEASE_S=15" in found["MANDOR_SWEEP_S"]["hint"]
    assert all(problem["hint"] for problem in found.values())


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("MANDOR_POLICY_FILE", "/nowhere/policy.json", "MANDOR_POLICY_FILE"),
        ("MANDOR_LEDGER_URL", "mysql://u:hunter2@host/db", "MANDOR_LEDGER_URL"),
        ("MANDOR_LEDGER_URL", "postgresql://u:hunter2@host", "MANDOR_LEDGER_URL"),
        ("MANDOR_REDIS_URL", "redis://u:hunter2@host:port/0", "MANDOR_REDIS_URL"),
        ("MANDOR_BROKER_URL", "kafka://host", "MANDOR_BROKER_URL"),
        ("MANDOR_FLOWER_ADDRESS", "0.0.0.0", "MANDOR_FLOWER_ADDRESS"),
        ("MANDOR_SHARDS", "1000", "MANDOR_SHARDS"),
        ("CELERY_BROKER_URL", "redis://elsewhere", "CELERY_BROKER_URL"),
    ],
)
def test_each_fault_is_named_once_with_the_mend_and_without_secrets(
    name: str, value: str, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    answer = check(capsys)
    assert [problem["path"] for problem in answer["problems"]] == [path]
    assert answer["problems"][0]["hint"]
    assert "hunter2" not in json.dumps(answer)


def test_a_policy_file_that_widens_names_both(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file.write_text('{"max_steps": 5000}')
    (problem,) = check(capsys)["problems"]
    assert problem["path"] == "MANDOR_POLICY_FILE"
    assert "MANDOR_MAX_STEPS" in problem["hint"]


def test_for_people_each_fault_is_followed_by_its_mend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_BACKOFF_S", "90")
    assert run(mandor, ["config", "check"]) == 1
    captured = capsys.readouterr()
    assert "MANDOR_BACKOFF_S  90     environment" in captured.out
    assert captured.err == (
        "error: MANDOR_BACKOFF_S does not fit MANDOR_BACKOFF_MAX_S: the first wait exceeds the longest\n"
        "  raise or lower one: MANDOR_BACKOFF_S=90, MANDOR_BACKOFF_MAX_S=60\n"
    )


def test_the_policy_is_shown_with_where_each_value_comes_from(
    policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_DEADLINE_S", "600")
    narrower = tmp_path / "narrower.json"
    narrower.write_text('{"quotas": {"create_file": {"steps": 2}}, "approvals": ["mutate_recrod"]}')
    assert run(mandor, ["config", "policy", "--policy", str(narrower), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    terms = {term["field"]: (term["value"], term["source"], term["at"]) for term in answer["terms"]}
    assert terms["max_steps"] == (7, "file", str(policy_file))
    assert terms["deadline_s"] == (600, "environment", "MANDOR_DEADLINE_S")
    assert terms["approvals"] == (["mutate_recrod"], "request", None)
    actions = {one["action"]: {term["field"]: term for term in one["terms"]} for one in answer["actions"]}
    assert (actions["create_file"]["steps"]["value"], actions["create_file"]["steps"]["source"]) == (2, "request")
    assert (actions["run_command"]["attempts"]["value"], actions["run_command"]["attempts"]["source"]) == (2, "action")
    assert answer["unknown"] == [{"field": "approvals", "name": "mutate_recrod", "hint": "did you mean mutate_record?"}]
    assert answer["policy_hash"] == policy_hash(policies.resolve(Settings(), inputs.read_policy(str(narrower))))


def test_the_policy_for_people(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy_file.write_text('{"max_steps": 7, "effects": ["idempotent"], "per_action": {"creat_file": {"attempts": 2}}}')
    assert run(mandor, ["config", "policy"]) == 0
    captured = capsys.readouterr()
    (line,) = (line for line in captured.out.splitlines() if line.startswith("max_steps "))
    assert line.split()[:3] == ["max_steps", "7", "file"]
    assert "no: run_command has effects of class once, which the policy does not allow" in captured.out
    assert (
        captured.err
        == "per_action names creat_file, and no action registered here is called so; did you mean create_file?\n"
    )


def test_a_policy_that_would_be_refused_is_refused_here_too(
    policy_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = tmp_path / "wider.json"
    wider.write_text('{"max_steps": 8}')
    assert run(mandor, ["config", "policy", "--policy", str(wider), "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["path"], error["message"]) == ("policy.max_steps", "max_steps: the request asks for 8, allowed is 7")
    assert "mandor config policy" in error["hint"]
    wider.write_text('{"max_steps": 5, "max_steps": 6}')
    assert run(mandor, ["config", "policy", "--policy", str(wider)]) == 2
    assert "max_steps" in capsys.readouterr().err
