"""The code in docs/actions.md is run here as it stands there."""

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.admission import Kind, validate_handoff
from schemas.canonical import hash_of
from schemas.policy import Policy
from schemas.states import EffectClass
from workers import Context, PlanContext
from workers.planners import PlannerInputInvalid, call_planner
from workers.registry import Registry
from workers.testing import context as actions_context

PAGE = Path(__file__).parents[2] / "docs" / "actions.md"
ORDER = {"card": "4242", "skus": ["tea", "cup"]}


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def shop(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ModuleType]]:
    """Each block of the page as an imported module."""
    monkeypatch.syspath_prepend(tmp_path)
    # each test its own names: a Celery app keeps the task that it was shown first under a name
    names = [f"{tmp_path.name}_{number}" for number, _ in enumerate(blocks())]
    for name, block in zip(names, blocks(), strict=True):
        (tmp_path / f"{name}.py").write_text(block)
    yield [import_module(name) for name in names]
    for name in names:
        del sys.modules[name]


def context(value: object) -> PlanContext:
    return PlanContext("run", None, "send it", json.dumps(value), hash_of(value), Policy())


def test_the_declarations_are_taken(registry: Registry, shop: list[ModuleType]) -> None:
    catalogue = registry.catalogue()
    assert set(catalogue.actions) == {"payments.charge", "shipping.book", "billing.invoice"}
    assert catalogue.actions["payments.charge"].effect is EffectClass.KEYED
    assert catalogue.actions["payments.charge"].summary == "Take money from a card."
    assert catalogue.actions["shipping.book"].referable == {"paid_by"}
    assert catalogue.planners == {"orders.fulfil"}


def test_the_task_is_taken_as_it_is(registry: Registry, shop: list[ModuleType]) -> None:
    invoice = registry.find_action("billing.invoice")
    assert (invoice.spec.attempts, invoice.spec.has_compensation) == (5, True)
    params = invoice.spec.params_model(order=7, email="a@b.example")
    assert invoice(params, actions_context()).startswith("7 to a@b.example, 1 times, idem:")


def test_the_plan_passes_the_door(registry: Registry, shop: list[ModuleType]) -> None:
    ctx = context(ORDER)
    answer = call_planner(registry.find_planner("orders.fulfil"), ctx)
    admission = validate_handoff(
        answer.raw, catalogue=registry.catalogue(), policy=ctx.policy, context_hash=ctx.context_hash
    )
    assert [(step.id, step.needs, step.refs) for step in admission.steps] == [
        ("charge", (), ()),
        ("s1", ("charge",), ("charge",)),
        ("s2", ("charge",), ("charge",)),
    ]
    assert admission.steps[1].params["carrier"] == "post"


def test_a_context_that_does_not_fit_names_the_key(registry: Registry, shop: list[ModuleType]) -> None:
    with pytest.raises(PlannerInputInvalid, match=r"context\.skus"):
        call_planner(registry.find_planner("orders.fulfil"), context({"card": "4242", "skus": "tea"}))


def test_the_judge_tells_path_and_kind(registry: Registry, shop: list[ModuleType]) -> None:
    raw = {
        "plan_id": "x",
        "context_hash": "0" * 64,
        "steps": [{"action": "payments.charge", "params": {"card": "4242"}}],
    }
    assert shop[-1].judge(json.dumps(raw)) == ["plan_id: value", "steps.0.params.cents: missing"]


def test_the_table_of_kinds_is_complete() -> None:
    table = PAGE.read_text().split("| stage | kinds |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(Kind)


def test_the_table_of_effect_classes_is_complete() -> None:
    table = PAGE.read_text().split("| `effect=` |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(EffectClass)


def test_all_that_a_context_has_is_in_the_table() -> None:
    table = PAGE.read_text().split("| `ctx.` |")[1].split("\n\n")[0]
    named = {name for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)}
    assert named == {name for name in vars(Context) if not name.startswith("_")}
