"""What must never be, brought about by force: each is told as the fact that says so, and nothing else is."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.audit import audit, history
from orchestrator.telemetry import events, facts, planned, signals
from orchestrator.telemetry.metrics import Metrics
from tests.support.servers import Server
from tests.support.workbench import Run, Workbench, workbench
from workers.context import Context

ALARMS = (signals.PolicyMismatch, signals.VersionConflict, signals.CommittedTwice, signals.NeverEnded)


class Nothing(BaseModel):
    """No params."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[events.Occurrence]:
    """Every fact that this process tells, counted on the way as a worker does."""
    heard: list[events.Occurrence] = []
    monkeypatch.setattr(facts, "_listeners", [*facts._listeners, heard.append, Metrics(["act"])])
    return heard


@pytest.fixture
def bench(redis_server: Server, namespace: str, tmp_path: Path) -> Workbench:
    return workbench(redis_server.url, namespace, tmp_path)


def two_steps(bench: Workbench, act: Any = lambda: None) -> Run:
    def run(params: Nothing, ctx: Context) -> None:
        act()

    bench.registry.action("act", effect="pure")(run)
    return bench.planned({"action": "act", "params": {}}, {"action": "act", "params": {}})


def alarms(told: list[events.Occurrence], run: Run) -> list[events.Occurrence]:
    """What was told during the run, and what its history shows."""
    seen = [fact for fact in told if isinstance(fact, ALARMS)]
    return [*seen, *audit(run.bench.store, run.ref)]


def change(run: Run, **fields: Any) -> None:
    """Tamper with the run's hash."""
    store = run.bench.store
    for name, value in fields.items():
        store.scripts.tell("HSET", store.keys.state(run.ref), name, value)


def test_an_ordinary_run_raises_no_alarm(bench: Workbench, told: list[events.Occurrence]) -> None:
    run = two_steps(bench)
    run.deliver("s0")
    run.deliver("s1")
    run.settle()
    assert run.state.status == "succeeded"
    assert alarms(told, run) == []
    assert len(list(history(bench.store, run.ref))) == run.state.version
    assert sum(isinstance(fact, signals.LoopEnded) for fact in told) == 2


def test_a_step_that_fails_for_good_raises_none_either(bench: Workbench, told: list[events.Occurrence]) -> None:
    def fail() -> None:
        raise ValueError("no")

    run = two_steps(bench, fail)
    for _ in range(3):
        run.deliver("s0")
        if run.step("s0").status == "backoff":
            run.wait_out_backoff("s0", 60_000)
    run.settle()
    assert run.state.status == "failed"
    assert alarms(told, run) == []
    failed = [fact for fact in told if isinstance(fact, events.StepFailed)]
    assert [fact.exhausted for fact in failed] == [True]
    assert sum(isinstance(fact, events.StepRetry) for fact in told) == 2
    assert sum(isinstance(fact, signals.LoopEnded) for fact in told) == 3


def test_a_second_commit_is_seen_in_the_history(bench: Workbench, told: list[events.Occurrence]) -> None:
    run = two_steps(bench)
    run.deliver("s0")
    store = bench.store
    store.scripts.tell(
        "XADD",
        store.keys.part(run.ref, "events"),
        "*",
        *("event", "step.committed", "version", run.state.version + 1, "at", 1, "steps", "s0=completed/1/9"),
    )
    change(run, version=run.state.version + 1)
    run.deliver("s1")
    run.settle()
    assert alarms(told, run) == [signals.CommittedTwice("s0", 1)]


def test_a_version_that_goes_back_is_seen_at_the_commit_and_in_the_history(
    bench: Workbench, told: list[events.Occurrence]
) -> None:
    runs: list[Run] = []
    run = two_steps(bench, lambda: change(runs[0], version=1))
    runs.append(run)
    before = run.state.version
    run.deliver("s0")
    assert alarms(told, run)[:2] == [
        signals.VersionConflict("back", before + 1, 2),
        signals.VersionConflict("back", before + 1, 2),
    ]


def test_a_policy_that_is_not_the_runs_is_seen_at_the_claim(bench: Workbench, told: list[events.Occurrence]) -> None:
    run = two_steps(bench)
    right = run.state.policy_hash
    change(run, policy_hash="0" * 64)
    run.deliver("s0")
    found = alarms(told, run)
    assert signals.PolicyMismatch("claim", "0" * 64, right) in found
    assert signals.PolicyMismatch("end", right, "0" * 64) in found


def test_a_step_that_was_sent_and_never_ended_is_counted(bench: Workbench, told: list[events.Occurrence]) -> None:
    run = two_steps(bench)
    assert alarms(told, run) == [signals.NeverEnded(1)]  # its history as it is now, before anything ran


def test_a_planner_that_raises_is_timed_and_told(bench: Workbench, told: list[events.Occurrence]) -> None:
    def broken(ctx: Any) -> str:
        raise ValueError("no")

    bench.registry.planner("broken")(broken)
    run = bench.submit(planner="broken", goal="x")
    run.plan()
    assert [fact.loop for fact in told if isinstance(fact, signals.LoopEnded)] == ["planner"]
    assert [fact.exhausted for fact in told if isinstance(fact, planned.PlannerFailed)] == [False]
