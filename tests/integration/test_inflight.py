"""`mandor plan check-inflight`: open runs, as one release left them, held against the actions of another."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.admission import Referable
from orchestrator.cli.command import run as mandor_run
from tests.support.servers import Server
from tests.support.workbench import Workbench, narrowed, workbench
from workers import inflight
from workers.cli import inflight as command
from workers.cli import mandor
from workers.context import Context
from workers.inflight import Stranded, look
from workers.registry import Registry


class Old(BaseModel):
    sku: Annotated[str, Referable]
    count: int = 1


class New(BaseModel):
    sku: Annotated[str, Referable]
    count: Annotated[int, Referable] = 1
    depot: str


class Booked(BaseModel):
    value: str


class Rebooked(BaseModel):
    value: int


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    made = workbench(redis_server.url, namespace, tmp_path)
    made.registry = release()
    return made


def release(
    *,
    model: type[BaseModel] = Old,
    result: type[BaseModel] = Booked,
    effect: str = "keyed",
    probe: bool = True,
    compensation: bool = True,
) -> Registry:
    """`pack`, `book` (which can be undone and asked) and a planner; each release says some of it otherwise."""
    registry = Registry()

    def pack(params, ctx):  # type: ignore[no-untyped-def]
        return {"value": "packed"}

    def book(params, ctx):  # type: ignore[no-untyped-def]
        return result(value="booked")

    def undo(params, done, ctx):  # type: ignore[no-untyped-def]
        ...

    def ask(params, ctx):  # type: ignore[no-untyped-def]
        return None

    pack.__annotations__ = {"params": model, "ctx": Context}
    book.__annotations__ = {"params": model, "ctx": Context, "return": result}
    undo.__annotations__ = {"params": model, "done": result | None, "ctx": Context}
    ask.__annotations__ = {"params": model, "ctx": Context}
    registry.action("pack", effect="idempotent")(pack)
    booking = registry.action("book", effect=effect)(book)
    if compensation:
        booking.compensation(undo)
    if probe:
        booking.probe(ask)
    registry.planner("shop.plan")(lambda ctx: ctx.plan())
    return registry


def planned(bench: Workbench, name: str = "run", **fields: Any) -> Any:
    """Book, pack, book again; the last one takes the first one's result."""
    return bench.planned(
        {"action": "book", "id": "first", "params": {"sku": "tea"}},
        {"action": "pack", "id": "pack", "params": {"sku": "tea"}},
        {"action": "book", "id": "last", "params": {"sku": {"$result": "first", "path": "/value"}}},
        name=name,
        **fields,
    )


def found(bench: Workbench, registry: Registry) -> list[Stranded]:
    looked = look(bench.ledger, bench.store, bench.settings.namespace, registry.catalogue())
    return [one for one in looked if one is not None]


def told(bench: Workbench, registry: Registry) -> list[tuple[str, str, str | None]]:
    return [(one.kind, one.need, one.step_id) for run in found(bench, registry) for one in run.findings]


def test_the_release_that_admitted_a_run_strands_none(bench: Workbench) -> None:
    planned(bench).deliver("first")
    bench.submit("waiting", planner="shop.plan", context={})
    looked = list(look(bench.ledger, bench.store, bench.settings.namespace, release().catalogue()))
    assert looked == [None, None]


def test_a_missing_action_strands_what_is_to_run_and_what_may_be_undone(bench: Workbench) -> None:
    run = planned(bench)
    run.deliver("first")
    without = Registry()
    assert told(bench, without) == [
        ("unknown_action", "undo", "first"),
        ("unknown_action", "run", "pack"),
        ("unknown_action", "run", "last"),
    ]
    [stranded] = found(bench, without)
    assert (stranded.run_id, stranded.status) == (run.ref.run_id, "running")
    assert [one.path for one in stranded.findings] == [f"steps.{index}.action" for index in range(3)]


def test_what_is_not_undone_needs_its_action_no_more(bench: Workbench) -> None:
    planned(bench, policy=narrowed(on_failure="stop")).deliver("first")
    assert [step for _, _, step in told(bench, Registry())] == ["pack", "last"]


def test_params_are_held_against_the_new_model_with_references_on_trust(bench: Workbench) -> None:
    planned(bench)
    [stranded] = found(bench, release(model=New))
    assert [(one.kind, one.path) for one in stranded.findings] == [
        ("params", f"steps.{index}.params.depot") for index in range(3)
    ]


def test_another_effect_class_and_a_lost_probe_are_told(bench: Workbench) -> None:
    planned(bench).deliver("first")
    assert told(bench, release(effect="idempotent", probe=False)) == [
        ("changed_effect", "undo", "first"),
        ("changed_effect", "run", "last"),
        ("no_probe", "run", "last"),
    ]


def test_a_compensation_that_was_taken_away_is_told_of_what_may_be_undone(bench: Workbench) -> None:
    planned(bench).deliver("first")
    assert told(bench, release(compensation=False)) == [("no_compensation", "undo", "first")]


def test_a_result_that_its_compensation_could_not_be_given_is_told(bench: Workbench) -> None:
    planned(bench).deliver("first")
    [stranded] = found(bench, release(result=Rebooked))
    assert [(one.kind, one.need, one.step_id) for one in stranded.findings] == [("result", "undo", "first")]
    assert "Rebooked" in stranded.findings[0].message


def test_a_run_without_a_plan_needs_its_planner(bench: Workbench) -> None:
    bench.submit("waiting", planner="shop.plan", context={})
    assert told(bench, Registry()) == [("unknown_planner", "run", None)]


def test_what_has_ended_or_is_somebody_elses_is_passed_over(bench: Workbench) -> None:
    run = planned(bench)
    for step in ("first", "pack", "last"):
        run.deliver(step)
    run.settle()
    assert run.state.status == "succeeded"
    assert found(bench, Registry()) == []
    assert list(look(bench.ledger, bench.store, "another", Registry().catalogue())) == []


def test_a_run_that_the_store_has_lost_is_judged_by_what_the_ledger_has(bench: Workbench, redis_server: Server) -> None:
    run = planned(bench)
    run.deliver("first")
    lose_run(redis_server, run.ref.run_id)
    assert [(kind, need) for kind, need, _ in told(bench, Registry())] == [("unknown_action", "run")] * 3


def lose_run(server: Server, run_id: str) -> None:
    """Its keys are gone, before the ledger was told of anything but its plan."""
    keys = list(server.client.scan_iter(f"*{run_id}*"))
    assert keys
    server.client.delete(*keys)


def test_many_runs_are_read_page_by_page_and_many_findings_are_counted(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "PAGE", 2)
    for number in range(5):
        planned(bench, f"run-{number}")
    bench.planned(*({"action": "pack", "params": {"sku": "x"}} for _ in range(25)), name="long")
    stranded = found(bench, Registry())
    assert len({one.run_id for one in stranded}) == 6
    assert sorted((len(one.findings), one.more) for one in stranded) == [(3, 0)] * 5 + [(20, 5)]


def test_a_failing_run_starts_nothing_more_and_is_still_undone(bench: Workbench) -> None:
    run = planned(bench)
    run.deliver("first")
    bench.store.runs.cancel(run.ref, 1)
    assert run.state.status in ("failing", "compensating")
    assert told(bench, Registry()) == [("unknown_action", "undo", "first")]


def test_the_command_tells_programs_and_people(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned(bench)
    monkeypatch.setattr(command, "services", lambda: bench)
    monkeypatch.setattr(command, "registry", Deployed(release()))
    assert mandor_run(mandor, ["plan", "check-inflight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": 1, "stranded": []}
    monkeypatch.setattr(command, "registry", Deployed(release(model=New)))
    assert mandor_run(mandor, ["plan", "check-inflight", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["runs"], answer["stranded"][0]["run_id"]) == (1, run.ref.run_id)
    assert answer["stranded"][0]["findings"][0] == {
        "kind": "params",
        "message": "Field required",
        "path": "steps.0.params.depot",
        "need": "run",
        "step_id": "first",
        "action": "book",
    }
    assert mandor_run(mandor, ["plan", "check-inflight"]) == 1
    printed = capsys.readouterr()
    assert "steps.0.params.depot" in printed.out
    assert "1 open run looked at, 1 would be stranded" in printed.err


class Deployed:
    """The actions of a release, as the command finds them imported."""

    def __init__(self, registry: Registry) -> None:
        self.catalogue = registry.catalogue

    def load_actions(self, settings: Any) -> None:
        """They are there."""
