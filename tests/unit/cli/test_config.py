import json
from typing import Any

import pytest

from orchestrator.cli.command import run
from orchestrator.settings import Settings
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
