"""A claim whose holder is gone may be ended by the copy of its message, a probe or a supervisor: it is told of once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.dispatch import App
from orchestrator.store.replies import Ended, Granted
from orchestrator.supervisors.reclaim_stale_leases import reclaim_step, reclaim_undo
from orchestrator.telemetry import events, facts
from orchestrator.telemetry.events import Occurrence
from tests.support.installation import celery_app
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers import Context, PermanentError

Ender = Callable[[Run, App], object]


class Params(BaseModel):
    x: int = 1


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    return workbench(redis_server.url, namespace, tmp_path)


@pytest.fixture
def app(redis_server: Server, namespace: str, tmp_path: Path) -> Iterator[App]:
    with celery_app(redis_server.url, queue_prefix=f"{namespace}.", home=tmp_path) as made:
        yield made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """By whom claims were ended, as it is told and counted."""
    heard: list[str] = []

    def listen(fact: Occurrence) -> None:
        if isinstance(fact, events.ClaimEnded):
            heard.append(fact.by)

    monkeypatch.setattr(facts, "_listeners", [listen])
    return heard


def lost_step(bench: Workbench) -> Run:
    """Its effect is under way, and its child is proven dead."""

    def act(params: Params, ctx: Context) -> int:
        return params.x

    def find(params: Params, ctx: Context) -> int | None:
        return None

    bench.registry.action("act", effect="keyed")(act).probe(find)
    run = bench.planned({"action": "act", "params": {}})
    guard = bench.store.guard
    granted = guard.claim_step(run.ref, "s0", generation=1, claim_id="lost", worker="host:9:9")
    assert isinstance(granted, Granted)
    assert isinstance(guard.end_claim(run.ref, "s0", "host:9:9"), Ended)
    return run


def lost_undo(bench: Workbench) -> Run:
    def act(params: Params, ctx: Context) -> int:
        return params.x

    def fail(params: Params, ctx: Context) -> None:
        raise PermanentError("no")

    def take_back(params: Params, done: int | None, ctx: Context) -> None:
        """Nothing is left of it."""

    bench.registry.action("act", effect="keyed")(act).compensation(take_back)
    bench.registry.action("fail", effect="pure")(fail)
    run = bench.planned({"action": "act", "params": {}}, {"action": "fail", "params": {}})
    run.deliver("s0")
    run.deliver("s1")
    run.settle()
    guard = bench.store.guard
    guard.claim_undo(run.ref, "s0", generation=1, claim_id="lost", worker="host:9:9")
    assert isinstance(guard.end_claim(run.ref, "s0", "host:9:9"), Ended)
    return run


def of_step(run: Run, app: App) -> object:
    bench = run.bench
    return reclaim_step(app, bench.store, bench.ledger, run.ref, "s0", 0)


def of_undo(run: Run, app: App) -> object:
    bench = run.bench
    return reclaim_undo(app, bench.store, bench.ledger, run.ref, run.step("s0"))


STEPS: dict[str, Ender] = {
    "redelivery": lambda run, app: run.deliver(),
    "probe": lambda run, app: run.close(),
    "reclaim-stale-leases": of_step,
}
UNDOS: dict[str, Ender] = {"redelivery": lambda run, app: run.undo(), "reclaim-stale-leases": of_undo}


def after_another(end: Callable[..., Any]) -> Callable[..., Any]:
    """Ends a claim a moment after somebody else has done so."""

    def late(*given: Any, **named: Any) -> Any:
        end(*given, **named)
        return end(*given, **named)

    return late


@pytest.mark.parametrize("by", STEPS)
def test_whoever_ends_the_claim_of_a_step_tells_of_it(bench: Workbench, app: App, told: list[str], by: str) -> None:
    STEPS[by](lost_step(bench), app)
    assert told == [by]


@pytest.mark.parametrize("by", STEPS)
def test_whoever_finds_a_steps_claim_ended_tells_nothing(
    bench: Workbench, app: App, told: list[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    run = lost_step(bench)
    monkeypatch.setattr(bench.store.guard, "expire_lease", after_another(bench.store.guard.expire_lease))
    STEPS[by](run, app)
    assert told == []
    assert run.step().status == ("completed" if by == "redelivery" else "dispatched")


@pytest.mark.parametrize("by", UNDOS)
def test_whoever_ends_the_claim_of_an_undo_tells_of_it(bench: Workbench, app: App, told: list[str], by: str) -> None:
    UNDOS[by](lost_undo(bench), app)
    assert told == [by]


@pytest.mark.parametrize("by", UNDOS)
def test_whoever_finds_an_undos_claim_ended_tells_nothing(
    bench: Workbench, app: App, told: list[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    run = lost_undo(bench)
    monkeypatch.setattr(bench.store.guard, "expire_undo", after_another(bench.store.guard.expire_undo))
    UNDOS[by](run, app)
    assert told == []
    assert run.step().status == ("compensated" if by == "redelivery" else "compensating")
