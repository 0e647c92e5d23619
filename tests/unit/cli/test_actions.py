"""`mandor actions`: what is registered, where it comes from, and what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import workers
from orchestrator.cli.command import run
from orchestrator.errors import ConfigError
from orchestrator.settings import Settings
from workers.cli import actions, mandor
from workers.loading import load_actions
from workers.registry import Registry

GOOD = """
from pydantic import BaseModel
from workers import Context, ExecutionPlan, PlanContext, action, planner, step

class Hello(BaseModel):
    name: str

@action("greet", effect="pure")
def greet(params: Hello, ctx: Context) -> str:
    '''Say hello.'''
    return params.name

@planner("greetings")
def greetings(hello: Hello, ctx: PlanContext) -> ExecutionPlan:
    '''Greet one.'''
    return ctx.plan(step("greet", name=hello.name))
"""
TASK = """
from celery import shared_task
from workers import action

@shared_task
def invoice(order: int) -> int:
    return order

action("billing.invoice", effect="pure")(invoice)
"""
BAD = """
from workers import action, planner

@action("Not a name", effect="pure")
def one(params, ctx): ...

@action("two", effect="idempotend")
def two(params, ctx): ...

@planner("three")
def three(a, b, c): ...
"""

Module = Callable[[str, str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Writes a module that can be imported, and that declares into a registry of this test alone."""
    fresh = Registry()
    monkeypatch.setattr(workers, "action", fresh.action)
    monkeypatch.setattr(workers, "planner", fresh.planner)
    monkeypatch.setattr(actions, "registry", fresh)
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def install(folder: Path, module: str) -> None:
    """As pip would install a distribution `shop-actions` whose entry point names the module."""
    info = folder / "shop_actions-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-actions\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mandor.actions]\nshop = {module}\n")


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(mandor, ["actions", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_every_bad_declaration_is_reported_with_its_mend(
    module: Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [module("checked_bad", BAD), "no_such_module", module("checked_after_bad", GOOD)]
    monkeypatch.setenv("MANDOR_ACTIONS", ",".join(names))
    code, found = answer(capsys, "check")
    assert code == 1
    wrong = {error["message"]: error["hint"] for error in found["errors"]}
    assert all(wrong.values())
    for words in ("'no_such_module' could not be imported", "'Not a name'", "did you mean 'idempotent'?", "'three'"):
        assert any(words in message for message in wrong), words
    assert len(wrong) == 4
    last = found["modules"][-1]
    assert last == {"module": "checked_after_bad", "named_by": "MANDOR_ACTIONS", "actions": 1, "planners": 1}


def test_good_declarations_are_counted(
    module: Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_ACTIONS", f"{module('checked_good', GOOD)},{module('checked_empty', '')}")
    assert run(mandor, ["actions", "check"]) == 0
    shown = capsys.readouterr()
    assert "checked_good" in shown.out
    assert "checked_empty declares nothing itself" in shown.err


def test_a_celery_task_counts_where_it_was_written(
    module: Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_ACTIONS", module("checked_task", TASK))
    code, found = answer(capsys, "check")
    assert (code, found["modules"][-1]["actions"]) == (0, 1)


def test_what_a_distribution_offers_is_there_unasked(
    module: Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, module("offered_actions", GOOD))
    code, found = answer(capsys, "list")
    assert code == 0
    assert [action["name"] for action in found["actions"]] == ["greet"]
    assert [(planner["name"], planner["context"]) for planner in found["planners"]] == [("greetings", "Hello")]


def test_a_broken_offer_names_its_distribution(
    module: Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "nothing_like_this")
    code, found = answer(capsys, "list")
    assert code == 2
    assert found["error"]["path"] == "entry point shop of shop-actions"
    assert "uninstall shop-actions" in found["error"]["hint"]


def test_a_planner_says_what_context_it_wants(
    module: Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MANDOR_ACTIONS", module("wants_context", GOOD))
    code, found = answer(capsys, "schema", "--planner", "greetings")
    assert (code, set(found["properties"])) == (0, {"name"})


def test_a_module_that_exits_is_a_fault_like_any_other(module: Module) -> None:
    name = module("exits_at_once", "raise SystemExit(3)")
    with pytest.raises(ConfigError, match="SystemExit: 3"):
        load_actions(Settings(actions=name))
