"""Decisions about many runs by a filter: the count first, then each, and no run that the filter does not name."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel

from orchestrator import app as celery_app
from orchestrator import decisions, progress
from orchestrator.cli.command import run as mandor_run
from orchestrator.errors import DecisionRefused, StoreUnavailable
from orchestrator.telemetry.logs import identity
from schemas.states import RunStatus
from tests.support.installation import Installation, lasting_installation
from tests.support.ledgers import run_named
from tests.support.servers import Server
from tests.support.stores import Clock
from tests.support.workbench import Run, Workbench, narrowed
from workers.cli import mandor
from workers.context import Context, PermanentError
from workers.registry import Registry

WAITING = narrowed(approvals=["pay", "ship"], on_failure="stop")
STOPPING = narrowed(on_failure="stop")


class Nothing(BaseModel):
    pass


@pytest.fixture(scope="module")
def lasting(redis_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Sessions keep the tests apart; each has it in force for itself."""
    name = f"bulk-{uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("bulk")
    with lasting_installation(redis_server.url, folder, namespace=name, queue_prefix=f"{name}.") as made:
        yield made


@pytest.fixture
def installed(lasting: Installation, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.setattr(celery_app, "app", lasting.app)
    with lasting.in_force():
        yield lasting


@pytest.fixture
def bench(installed: Installation) -> Workbench:
    registry = Registry()

    def declare(name: str, effect: str) -> None:
        def act(params: Nothing, ctx: Context) -> None:
            if name == "break":
                raise PermanentError("no")

        registry.action(name, effect=effect)(act)

    for name in ("pay", "ship", "break"):
        declare(name, "pure")
    return Workbench(installed.settings, installed.store, Clock(), installed.ledger, registry)


@pytest.fixture
def session() -> str:
    return f"session-{uuid4().hex}"


def waiting(bench: Workbench, session: str, name: str, *actions: str) -> Run:
    """A run whose steps all wait for a person."""
    steps = [{"action": action, "id": action, "params": {}, "needs": []} for action in actions or ("pay",)]
    return bench.planned(*steps, name=f"{session}-{name}", session_id=session, policy=WAITING)


def failed(bench: Workbench, installed: Installation, session: str, name: str) -> Run:
    run = bench.planned(
        {"action": "break", "params": {}}, name=f"{session}-{name}", session_id=session, policy=STOPPING
    )
    run.deliver()
    with identity():
        progress.settle_due(installed.app, installed.store, installed.ledger, run.ref)
    return run


def says(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert mandor_run(mandor, ["run", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def stands(run: Run) -> str:
    return str(run.state.status)


def test_a_dry_run_counts_and_names_and_decides_nothing(
    bench: Workbench, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [waiting(bench, session, str(number)) for number in range(3)]
    waiting(bench, f"{session}-other", "other")
    answer = says(capsys, "cancel", "--session", session, "--dry-run")
    assert (answer["found"], answer["statuses"]) == (3, {"running": 3})
    assert {one["run_id"] for one in answer["runs"]} == {run.ref.run_id for run in runs}
    assert [stands(run) for run in runs] == ["running"] * 3
    assert mandor_run(mandor, ["run", "cancel", "--session", session, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "3 runs found (3 running); nothing was decided" in printed.err
    assert all(run.ref.run_id in printed.out for run in runs)
    assert says(capsys, "cancel", runs[0].ref.run_id, "--dry-run", code=2)["error"]["kind"] == "usage"


def test_more_than_one_take_a_yes(bench: Workbench, session: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [waiting(bench, session, str(number)) for number in range(2)]
    refused = says(capsys, "cancel", "--session", session, code=2)["error"]["message"]
    assert "2 runs" in refused
    assert "--dry-run" in refused
    assert [stands(run) for run in runs] == ["running"] * 2
    done = says(capsys, "cancel", "--session", session, "--yes")["decisions"]
    assert [one["carried_out"] for one in done] == [True, True]
    assert says(capsys, "cancel", "--session", session, "--status", "running", "--dry-run")["found"] == 0


def test_steps_are_approved_by_their_action_and_no_others(
    bench: Workbench, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [waiting(bench, session, str(number), "pay", "ship") for number in range(2)]
    asked = ("approve", "--session", session, "--action", "pay")
    found = says(capsys, *asked, "--dry-run")
    assert (found["found"], {one["step_id"] for one in found["runs"]}) == (2, {"pay"})
    says(capsys, *asked, code=2)
    assert {one["step_id"] for one in says(capsys, *asked, "--yes")["decisions"]} == {"pay"}
    assert [(run.step("pay").status, run.step("ship").status) for run in runs] == [
        ("dispatched", "waiting_approval")
    ] * 2


def test_a_retry_without_a_status_is_about_what_can_be_started_over(
    bench: Workbench, installed: Installation, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [failed(bench, installed, session, name) for name in ("a", "b")]
    open_one = waiting(bench, session, "open")
    found = says(capsys, "retry", "--session", session, "--dry-run")
    assert {one["run_id"]: one["status"] for one in found["runs"]} == {run.ref.run_id: "failed" for run in gone}
    assert says(capsys, "retry", "--session", session, "--action", "pay", "--dry-run")["found"] == 0
    assert (
        says(capsys, "retry", "--session", session, "--error", "permanent", "--until", "1h", "--dry-run")["found"] == 0
    )
    done = says(capsys, "retry", "--session", session, "--error", "permanent", "--since", "1h", "--yes")["decisions"]
    assert [one["outcome"] for one in done] == ["retried:2", "retried:2"]
    assert stands(open_one) == "running"


def test_a_ledger_may_serve_others_whose_runs_are_not_touched(
    installed: Installation, session: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = installed.settings.namespace
    for namespace in (ours, "theirs"):
        row = run_named(f"{session}-{namespace}", session_id=session, namespace=namespace)
        installed.ledger.accept(row)
        installed.ledger.end_run(row.run_id, 1, RunStatus.FAILED, None, 1, 1)
    found = says(capsys, "retry", "--session", session, "--dry-run")["runs"]
    assert [one["run_id"] for one in found] == [run_named(f"{session}-{ours}", session_id=session).run_id]


def test_one_that_cannot_follow_does_not_stop_the_others(
    bench: Workbench, session: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [waiting(bench, session, str(number)) for number in range(3)]
    middle, approve = runs[1].ref.run_id, decisions.approve

    def or_not(desk: Any, run_id: str, *rest: Any, **more: Any) -> Any:
        if run_id == middle:
            raise DecisionRefused("it has moved on")
        return approve(desk, run_id, *rest, **more)

    monkeypatch.setattr(decisions, "approve", or_not)
    rows = says(capsys, "approve", "--session", session, "--yes", code=1)["decisions"]
    assert {row["run_id"]: row["carried_out"] for row in rows} == {run.ref.run_id: run is not runs[1] for run in runs}


def test_whoever_breaks_off_is_told_how_far_it_came(
    bench: Workbench, session: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [waiting(bench, session, str(number)) for number in range(3)]
    cancel, ended = decisions.cancel, list[Exception | type[BaseException]]()

    def breaking(desk: Any, run_id: str, *rest: Any) -> Any:
        if sum(stands(run) != "running" for run in runs) == 2:
            raise ended.pop()
        return cancel(desk, run_id, *rest)

    monkeypatch.setattr(decisions, "cancel", breaking)
    ended += [KeyboardInterrupt, StoreUnavailable("no answer")]
    away = says(capsys, "cancel", "--session", session, "--yes", code=3)
    assert "2 of 3 were decided about" in away["error"]["hint"]
    assert {row["run_id"] for row in away["decisions"]} == {run.ref.run_id for run in runs if stands(run) != "running"}
    waiting(bench, session, "late")
    interrupted = says(capsys, "cancel", "--session", session, "--status", "running", "--yes", code=130)["error"]
    assert "0 of 2 were decided about" in interrupted["hint"]


def two_people_say(*words: str) -> None:
    """The same, in two processes at once. Whoever came too late for one is told so."""
    said = [sys.executable, "-m", "workers.cli", "run", *words, "--yes", "--json"]
    people = [subprocess.Popen([*said, "--by", who], stdout=subprocess.PIPE, text=True) for who in ("ann", "bob")]
    for one in people:
        answer = json.loads(one.communicate(timeout=60)[0])
        assert one.returncode == 0 or not all(row["carried_out"] for row in answer["decisions"])


def events_of(installed: Installation, run: Run) -> list[str]:
    return [event.event for event in installed.store.views.events(run.ref)]


@pytest.mark.full
def test_two_people_at_once_decide_once(bench: Workbench, installed: Installation, session: str) -> None:
    runs = [waiting(bench, session, str(number)) for number in range(8)]
    two_people_say("cancel", "--session", session)
    for run in runs:
        assert stands(run) in ("failing", "cancelled")
        assert events_of(installed, run).count("run.cancel") == 1


@pytest.mark.full
def test_two_people_at_once_approve_once_and_start_over_once(
    bench: Workbench, installed: Installation, session: str
) -> None:
    waits = [waiting(bench, session, str(number)) for number in range(4)]
    ended = [failed(bench, installed, session, f"failed{number}") for number in range(4)]
    two_people_say("approve", "--session", session, "--action", "pay")
    two_people_say("retry", "--session", session)
    assert [run.step("pay").status for run in waits] == ["dispatched"] * 4
    assert [events_of(installed, run).count("step.approved") for run in waits] == [1] * 4
    assert [run.state.generation for run in ended] == [2] * 4
    assert [events_of(installed, run).count("run.retried") for run in ended] == [1] * 4
