"""`mandor faults run` before anything is started."""

import json

import pytest

from orchestrator.cli.command import run
from workers.cli import faults, mandor
from workers.faults.kit import Options


def test_the_list_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(mandor, ["faults", "run", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["scenarios"]
    assert [one["name"] for one in listed] == [f"S{number}" for number in range(1, 13)]
    assert run(mandor, ["faults", "run", "--list"]) == 0
    assert "S7        the server is away" in capsys.readouterr().out


def test_scenarios_are_chosen_by_name_each_once() -> None:
    assert faults.chosen("s3, S1,S3") == ("S3", "S1")
    assert len(faults.chosen(None)) == 12


def test_how_to_play_it_again() -> None:
    assert faults.again(Options(("S3", "S1"), 7), {"plan": None}) == "mandor faults run --scenario S3,S1 --seed 7"
    given = {"actions": "shop", "planner": "p", "context": '{"a": 1}'}
    said = faults.again(Options(faults.chosen(None), 7, planner="p"), given)
    assert said == """mandor faults run --seed 7 --actions shop --planner p --context '{"a": 1}'"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scenario", "S13"], "no scenario is called S13"),
        (["--scenario", ","], "no scenario is called"),
        (["--actions", "shop"], "what these actions are to do"),
        (["--planner", "a", "--plan", "-"], "say who plans"),
        (["--context", "{}"], "--context belongs to"),
        (["--planner", "a", "--context", "[]"], "a context is a JSON object"),
        (["--planner", "a", "--context", "{"], "--context"),
        (["--plan", "nowhere.json"], "nowhere.json"),
        (["--seed", "-1"], "--seed"),
        (["--junit", "nowhere/faults.xml"], "--junit"),
    ],
)
def test_what_cannot_be_played_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(mandor, ["faults", "run", *arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert said in f"{error['path']} {error['message']}"
