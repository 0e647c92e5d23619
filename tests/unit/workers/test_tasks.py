"""How the end of a delivery is told to Celery."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject, Retry

from orchestrator import dead_letters
from orchestrator import tasks as control
from orchestrator.errors import LedgerUnavailable, StoreAmnesia, StoreMoved
from orchestrator.healing import worker as watched
from orchestrator.healing.checks import State
from orchestrator.healing.worker import Watch, Who
from orchestrator.settings import Settings
from schemas.messages import Receipt, ReceiptStatus, StepMessage
from schemas.policy import Policy, Rung
from tests.support.waiting import eventually
from workers import letting_go, stopping, tasks
from workers.actions.commands import run_command
from workers.registry import registry
from workers.reports import Done, GivenUp, Later, Nothing, Report
from workers.sandbox import ladder
from workers.sandbox.host import this_host
from workers.sandbox.ladder import Ladder


@pytest.fixture
def task() -> Any:
    request = SimpleNamespace(id="id", chord={"task": "settle"}, delivery_info={})
    return SimpleNamespace(name="workers.step", request=request)


@pytest.fixture(autouse=True)
def _nobody_stops() -> Iterator[None]:
    yield
    stopping.take_back()


def tell(task: Any, report: Report | Exception) -> Any:
    def deliver() -> Report:
        if isinstance(report, Exception):
            raise report
        return report

    return tasks._tell(task, tasks.StepFailed, deliver)


def test_a_receipt_is_the_part_of_the_chord(task: Any) -> None:
    receipt = Receipt(step_id="a", status=ReceiptStatus.EXECUTED, fence=7)
    assert tell(task, Done(receipt)) == {"step_id": "a", "status": "executed", "fence": 7}
    assert task.request.chord is not None


def test_nothing_to_report_is_acknowledged_without_a_part(task: Any) -> None:
    with pytest.raises(Ignore, match="busy"):
        tell(task, Nothing("busy"))


def test_a_step_that_is_tried_again_is_a_retry_that_publishes_nothing(task: Any) -> None:
    with pytest.raises(Retry, match="no such card"):
        tell(task, Later("ValueError: no such card"))
    assert task.request.chord is not None


def test_a_failure_for_good_leaves_the_chord_alone(task: Any) -> None:
    with pytest.raises(tasks.StepFailed, match="no such card"):
        tell(task, GivenUp("ValueError: no such card"))
    assert task.request.chord is None


def test_a_worker_that_is_stopping_begins_nothing(task: Any) -> None:
    stopping.announce()
    with pytest.raises(Reject) as rejected:
        tell(task, AssertionError("it was begun"))
    assert rejected.value.requeue is True


@pytest.mark.parametrize("error", [StoreMoved("another server"), StoreAmnesia("it forgot")])
def test_a_store_that_is_not_ours_is_waited_for(task: Any, error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Exception] = []
    monkeypatch.setattr(tasks, "wait_for_memory", waited.append)
    with pytest.raises(Reject) as rejected:
        tell(task, error)
    assert rejected.value.requeue is True
    assert waited == [error]


def test_a_ledger_that_is_away_is_waited_for_elsewhere(task: Any) -> None:
    with pytest.raises(Ignore):
        tell(task, LedgerUnavailable("away"))


@pytest.mark.parametrize("task_of", [tasks.step, tasks.plan])
def test_both_tasks_hold_a_claim_and_give_their_message_back(task_of: Any) -> None:
    assert task_of.acks_late
    assert task_of.reject_on_worker_lost
    assert not task_of.acks_on_timeout
    assert task_of.ignore_result
    assert task_of.Request == "workers.request:ClaimRequest"


def test_a_message_of_another_shape_becomes_a_letter(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    letters: list[tuple[Any, ...]] = []
    keep: Callable[..., None] = lambda *fields: letters.append(fields)  # noqa: E731
    monkeypatch.setattr(dead_letters, "unreadable", keep)
    monkeypatch.setattr(control, "ledger", lambda: None)
    crafted = {"run_id": "../../etc", "session": "-", "generation": 1, "step_id": "a"}
    with pytest.raises(Ignore):
        control.read_message(task, StepMessage, crafted)
    assert "run_id" in letters[0][-1]


# ---- what a worker looks after


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watch]:
    """Makes this process the main process of a worker of these queues."""

    def consuming(*queues: str) -> Watch:
        given = Settings(home=tmp_path, redis_url="redis://127.0.0.1:1/0", health_every_s=0.1)
        made = Watch(given, Who("steps@here", [given.prefix + name for name in queues]))
        monkeypatch.setattr(watched, "_current", [made])
        return made

    return consuming


@pytest.mark.parametrize(
    ("queues", "looks"),
    [(("steps",), True), (("later",), True), (("plan", "later"), True), (("plan",), False), (("control",), False)],
)
def test_who_may_have_made_workspaces_looks_after_them(
    watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch, queues: tuple[str, ...], looks: bool
) -> None:
    begun: list[Settings] = []
    later = SimpleNamespace(spec=SimpleNamespace(queue="later"))
    monkeypatch.setattr(registry, "actions", lambda: [later, run_command])
    monkeypatch.setattr(letting_go, "begin", begun.append)
    tasks._look_after_workspaces(watch(*queues).settings)
    assert bool(begun) == looks


@pytest.mark.parametrize(
    ("policy", "fails"),
    [(Policy(), True), (Policy(min_rung=Rung.RLIMITS), False), (Policy(actions=frozenset({"create_file"})), None)],
)
def test_a_worker_that_policy_wants_a_sandbox_of_is_not_ready_without(
    watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch, policy: Policy, fails: bool | None
) -> None:
    here = watch("steps")
    found = Ladder(this_host(65_534), (Rung.RLIMITS,), {Rung.NAMESPACES: "errno 1"})
    monkeypatch.setattr(ladder, "find", lambda _: found)
    monkeypatch.setattr(registry, "actions", lambda: [run_command])
    tasks._look_for_sandboxes(here.settings, policy)
    states = {state.check: state.fault for state in here.ready()}
    assert here.about == {"sandbox": "rlimits"}
    assert ("sandbox" in states) == (fails is not None)
    if fails:
        fault = eventually(lambda: state_of(here, "sandbox").fault)
        assert fault is not None
        assert fault.text == "no sandbox as strong as namespaces: namespaces: errno 1"
        assert "run_command" in str(fault.mend)
    elif fails is False:
        eventually(lambda: state_of(here, "sandbox").ok)


def test_what_a_child_finds_later_is_what_its_worker_says(
    watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks anew where a start of a sandbox has failed."""
    host = this_host(65_534)
    here, good, bad = watch("steps"), Ladder(host, (Rung.NAMESPACES,), {}), Ladder(host, (), {})
    monkeypatch.setattr(registry, "actions", lambda: [run_command])
    monkeypatch.setattr(ladder, "find", lambda _: good)
    tasks._look_for_sandboxes(here.settings, Policy())
    eventually(lambda: state_of(here, "sandbox").ok)
    look_in_a_child(here, bad, monkeypatch)
    eventually(lambda: not state_of(here, "sandbox").ok and here.about["sandbox"] == "none")
    look_in_a_child(here, good, monkeypatch)
    eventually(lambda: state_of(here, "sandbox").ok and here.about["sandbox"] == "namespaces")


def look_in_a_child(here: Watch, found: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "find", lambda _: found)
    if (child := os.fork()) == 0:
        ladder.look_again(here.settings)
        os._exit(0)
    os.waitpid(child, 0)


def state_of(here: Watch, check: str) -> State:
    (state,) = (state for state in here.ready() if state.check == check)
    return state
