"""`mandor plan dry-run`: the door, and behind it nothing but words."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.admission import Referable, validate_handoff
from orchestrator.cli.command import run
from orchestrator.settings import settings
from schemas.policy import Policy, PolicyRequest, meet
from tests.support.ledgers import url_of
from tests.support.plans import HASH, PLAN_ID, command, file, plan_text, record
from workers.cli import mandor
from workers.context import Context
from workers.loading import load_actions
from workers.registry import BadDeclaration, Registry, registry
from workers.rehearsal import rehearse

PLAN = (command("rm -rf build\x1b[2J", id="clean"), file(id="note"), record({"b": 1, "a": 2}, id="mark"))
NARROWER = {"approvals": ["run_command"], "deadline_s": 60, "per_action": {"run_command": {"attempts": 2}}}


class Charge(BaseModel):
    cents: int
    card: Annotated[str, Referable] = "4242"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(plan_text(*PLAN))
    return path


@pytest.fixture
def narrower(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(NARROWER))
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert run(mandor, ["plan", "dry-run", *map(str, arguments)]) == code
    return capsys.readouterr().out


def test_each_step_is_told_with_its_terms(plan: Path, narrower: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(said(capsys, plan, "--no-context", "--policy", narrower, "--json"))
    assert (answer["verdict"], answer["errors"], answer["run"]["deadline_s"]) == ("accept", [], 60)
    clean, note, mark = answer["steps"]
    assert clean["would"] == "run in a sandbox, for 5000 ms at most: rm -rf build\x1b[2J"
    assert (clean["effect"], clean["approval"], clean["limits"]["attempts"]) == ("once", True, 2)
    assert (note["would"], note["approval"]) == ("write 1 bytes to a.txt in the run's workspace", False)
    assert (note["compensation"], note["params"]) == (True, {"path": "a.txt", "content": "x"})
    assert mark["would"].startswith("set a, b of the record")
    assert answer["waves"] == [["clean"], ["note"], ["mark"]]


def test_people_are_told_the_same_and_nothing_acts_on_their_terminal(
    plan: Path, narrower: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, plan, "--no-context", "--policy", narrower)
    assert "0  clean  run_command (once)" in text
    assert r"would: run in a sandbox, for 5000 ms at most: rm -rf build\x1b[2J" in text
    assert "waits for a person's approval, 86400 s at most" in text
    assert "2 attempts of " in text
    assert text.count("if the run fails: it goes with the run's workspace") == 1
    assert text.count("its compensation undoes it") == 2
    assert "\x1b" not in text


def test_a_command_that_may_run_without_a_sandbox_is_undone_by_nothing(
    plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def confined() -> list[bool]:
        answer = json.loads(said(capsys, plan, "--no-context", "--json"))
        return [one["confined"] for one in answer["steps"]]

    assert confined() == [True, True, False]
    monkeypatch.setenv("MANDOR_MIN_RUNG", "rlimits")
    assert confined() == [False, True, False]
    assert said(capsys, plan, "--no-context").count("if the run fails: nothing undoes it") == 1


def test_where_the_policy_stops_nothing_is_said_to_be_undone(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stops = tmp_path / "stops.json"
    stops.write_text('{"on_failure": "stop"}')
    text = said(capsys, plan, "--no-context", "--policy", stops)
    assert text.count("if the run fails: it stays, for the policy undoes nothing (on_failure)") == 3


def test_the_chart_shows_class_and_approval(plan: Path, narrower: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, plan, "--no-context", "--policy", narrower, "--mermaid").splitlines()
    assert lines[:3] == [
        "flowchart TD",
        '    n0["clean<br/>run_command<br/>once<br/>needs approval"]',
        '    n1["note<br/>create_file<br/>idempotent"]',
    ]
    assert lines[-2:] == ["    n0 --> n1", "    n1 --> n2"]


@pytest.mark.parametrize(
    ("text", "options", "path"),
    [
        (plan_text(file(content=3)), ["--no-context"], "steps.0.params.content"),
        (plan_text(file()), [], "context_hash"),
        (plan_text(command(), file()), ["--no-context", "--policy", "POLICY"], "steps.0.action"),
    ],
    ids=["params", "context", "policy"],
)
def test_nothing_passes_that_the_door_refuses(
    text: str, options: list[str], path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.json").write_text('{"actions": ["create_file"]}')
    (tmp_path / "plan.json").write_text(text)
    given = [str(tmp_path / "policy.json") if option == "POLICY" else option for option in options]
    answer = json.loads(said(capsys, tmp_path / "plan.json", *given, "--json", code=1))
    assert (answer["verdict"], answer["errors"][0]["path"]) == ("reject", path)
    assert path in said(capsys, tmp_path / "plan.json", *given, code=1)
    assert run(mandor, ["plan", "dry-run", str(tmp_path / "plan.json"), *given, "--mermaid"]) == 1
    assert capsys.readouterr().out == "", "there is nothing to draw"


def test_no_file_and_no_ledger_comes_of_it(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANDOR_LEDGER_URL", url_of(tmp_path))
    monkeypatch.setenv("MANDOR_HOME", str(tmp_path / "home"))
    before = sorted(tmp_path.rglob("*"))
    said(capsys, plan, "--no-context")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_simulate_that_fails_is_told_beside_the_others(
    error: type[BaseException], plan: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(params: Any) -> str:
        raise error("no such bank")

    load_actions(settings())
    monkeypatch.setattr(registry.find_action("create_file"), "foresee", fail)
    answer = json.loads(said(capsys, plan, "--no-context", "--json", code=1))
    assert [(step["would"] is None, step["failed"]) for step in answer["steps"]] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert f"{error.__name__}: no such bank" in answer["steps"][1]["why"]


# ---- what actions say


def declared() -> Registry:
    mine = Registry()

    @mine.action("pay", effect="keyed", queue="bank", attempts=4)
    def pay(params: Charge, ctx: Context) -> None: ...

    @pay.simulate
    def foresee(params: Charge) -> str:
        return f"take {params.cents} from {params.card}"

    @mine.action("look", effect="pure")
    def look(params: Charge, ctx: Context) -> None: ...

    return mine


def test_who_has_no_simulate_or_no_params_yet_says_why() -> None:
    mine = declared()
    steps = [
        {"action": "look", "params": {"cents": 1}, "id": "look"},
        {"action": "pay", "params": {"cents": 5}, "id": "known"},
        {"action": "pay", "params": {"cents": 5, "card": {"$result": "look", "path": ""}}, "id": "later"},
    ]
    raw = json.dumps({"plan_id": PLAN_ID, "context_hash": HASH, "steps": steps})
    policy = meet(Policy(), PolicyRequest(approvals=frozenset({"pay"}), limits={"attempts": 2}), "test")  # type: ignore[arg-type]
    admitted = validate_handoff(raw, catalogue=mine.catalogue(), policy=policy, context_hash=None)
    look, known, later = rehearse(admitted, policy, mine)
    assert (look.would, look.why, look.approval) == (None, "its action has no simulate", False)
    assert (known.would, known.approval, known.queue) == ("take 5 from 4242", True, "bank")
    assert known.limits.attempts == 2, "the policy binds what the action declares"
    assert later.would is None
    assert "results of look" in str(later.why)


def test_a_simulate_that_could_not_answer_is_refused() -> None:
    pay = declared().find_action("pay")

    def two(params: Charge, ctx: Context) -> str: ...  # type: ignore[empty-body]
    def number(params: Charge) -> int: ...  # type: ignore[empty-body]
    def other(params: Context) -> str: ...  # type: ignore[empty-body]
    def again(params: Charge) -> str: ...  # type: ignore[empty-body]

    for function, words in ((two, "2 parameters"), (number, "text"), (other, "other params"), (again, "before")):
        with pytest.raises(BadDeclaration, match=words):
            pay.simulate(function)  # type: ignore[type-var]
