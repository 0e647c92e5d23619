"""How the end of a delivery is told to Celery."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject, Retry

from orchestrator import dead_letters
from orchestrator import tasks as control
from orchestrator.errors import LedgerUnavailable, StoreAmnesia, StoreMoved
from schemas.messages import Receipt, ReceiptStatus, StepMessage
from workers import stopping, tasks
from workers.reports import Done, GivenUp, Later, Nothing, Report


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
